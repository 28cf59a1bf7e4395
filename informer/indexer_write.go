package informer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/store"
)

// Add stores an object. As with client-go, in the indexer of an informer that is
// the informer's business, but for tests that run none.
func (x *Indexer) Add(obj any) error { return x.Update(obj) }

// Update stores an object.
func (x *Indexer) Update(obj any) error {
	change, err := x.change(obj)
	if err != nil {
		return err
	}
	return x.apply(change)
}

// Delete removes what is stored under obj's key.
func (x *Indexer) Delete(obj any) error {
	key, err := deltafifo.KeyOf(obj)
	if err != nil {
		return cache.KeyError{Obj: obj, Err: err}
	}
	return x.apply(store.Change{Key: key})
}

func (x *Indexer) apply(change store.Change) error {
	if err := x.open(); err != nil {
		return err
	}
	if err := x.coll.Apply(store.Batch{Changes: []store.Change{change}}); err != nil {
		return err
	}
	x.decoder.reset() // tests write what they like under one resourceVersion
	return nil
}

func (x *Indexer) change(obj any) (store.Change, error) {
	o, ok := obj.(runtime.Object)
	if !ok {
		return store.Change{}, cache.KeyError{Obj: obj, Err: fmt.Errorf("a %T is no runtime.Object", obj)}
	}
	encoded, err := x.opts.codec.Encode(o)
	if err != nil {
		return store.Change{}, err
	}
	return store.Change{Key: encoded.Key(), Object: encoded}, nil
}

// Replace makes list all that is stored, complete as of rv. After an error what was
// stored before is.
func (x *Indexer) Replace(list []any, rv string) error {
	if err := x.open(); err != nil {
		return err
	}
	changes := make([]store.Change, 0, len(list))
	stays := make(map[string]struct{}, len(list))
	for _, obj := range list {
		change, err := x.change(obj)
		if err != nil {
			return err
		}
		changes = append(changes, change)
		stays[change.Key] = struct{}{}
	}
	r, err := x.coll.Replace()
	if err != nil {
		return err
	}
	// What comes after a commit does nothing; after an error it frees the collection.
	defer func() { _ = r.Abort() }()
	keys, err := Known{Collection: x.coll}.Keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if _, ok := stays[key]; !ok {
			changes = append(changes, store.Change{Key: key})
		}
	}
	if err := r.Apply(changes); err != nil {
		return err
	}
	cp := x.coll.State().Checkpoint
	cp.RV = rv
	if err := r.Commit(cp); err != nil {
		return err
	}
	x.decoder.reset()
	return nil
}

// Resync does nothing: it means something for queues only.
func (x *Indexer) Resync() error { return nil }

// LastStoreSyncResourceVersion is the resourceVersion that the stored objects are
// complete at; empty where there was no complete list.
func (x *Indexer) LastStoreSyncResourceVersion() string {
	if err := x.open(); err != nil {
		x.failed(err)
		return ""
	}
	return x.coll.State().RV
}

// Bookmark does nothing. The stored resourceVersion says what is stored, so only
// what is stored moves it; the informer's own bookmarks do.
func (x *Indexer) Bookmark(string) {}
