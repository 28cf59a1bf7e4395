package informer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
)

// Add stores an object. As in client-go, only the informer should write to its indexer, except in
// tests that run no informer.
func (x *Indexer) Add(obj any) error { return x.Update(obj) }

// Update stores an object.
func (x *Indexer) Update(obj any) error {
	change, err := x.change(obj)
	if err != nil {
		return err
	}
	return x.apply(change, obj)
}

// Delete removes the object that is stored under obj's key.
func (x *Indexer) Delete(obj any) error {
	key, err := deltafifo.KeyOf(obj)
	if err != nil {
		return cache.KeyError{Obj: obj, Err: err}
	}
	return x.apply(store.Change{Key: key}, obj)
}

// apply stores a change that the caller of Add, Update or Delete made with obj.
func (x *Indexer) apply(change store.Change, obj any) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.one[0] = change
	err := x.coll.write(func(c store.Collection) error { return c.Apply(store.Batch{Changes: x.one[:]}) })
	x.one[0] = store.Change{} // which would keep the object
	if err != nil {
		return err
	}
	x.forget()
	if o, err := meta.Accessor(obj); err == nil {
		x.reachedLocked(o.GetResourceVersion())
	}
	return nil
}

// forget empties the cache of decoded objects after a caller's write, which may store another
// object under the same UID and resourceVersion. A store that shares its objects needs no cache.
func (x *Indexer) forget() {
	if !x.shares {
		x.decoder.reset()
	}
}

func (x *Indexer) change(obj any) (store.Change, error) {
	o, ok := obj.(runtime.Object)
	if !ok {
		return store.Change{}, cache.KeyError{Obj: obj, Err: fmt.Errorf("a %T is no runtime.Object", obj)}
	}
	encoded, err := x.encode(o)
	if err != nil {
		return store.Change{}, err
	}
	return store.Change{Key: encoded.Key(), Object: encoded}, nil
}

// Replace replaces all stored objects by list, complete as of rv. On an error the stored objects
// stay as they were. Once an informer has run, rv has no effect: only the informer's lists and
// events move the stored resourceVersion.
func (x *Indexer) Replace(list []any, rv string) error {
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
	x.writing.Lock()
	defer x.writing.Unlock()
	if err := x.coll.write(func(c store.Collection) error { return x.replace(c, changes, stays, rv) }); err != nil {
		return err
	}
	x.forget()
	x.reachedLocked(rv)
	return nil
}

// replace stores changes and removes the keys that are not in stays.
func (x *Indexer) replace(c store.Collection, changes []store.Change, stays map[string]struct{}, rv string) error {
	if x.fed.Load() {
		changes, err := withRemovals(c, changes, stays)
		if err != nil {
			return err
		}
		// Not a replacement, which would be a complete list with a checkpoint of its own.
		return c.Apply(store.Batch{Changes: changes})
	}
	r, err := c.Replace()
	if err != nil {
		return err
	}
	// After a commit Abort does nothing; after an error it unlocks the collection.
	defer func() { _ = r.Abort() }()
	if changes, err = withRemovals(c, changes, stays); err != nil {
		return err
	}
	if err := r.Apply(changes); err != nil {
		return err
	}
	cp := c.State().Checkpoint
	cp.RV = rv
	return r.Commit(cp)
}

// withRemovals adds to changes the removal of each stored key that is not in stays.
func withRemovals(c store.Collection, changes []store.Change, stays map[string]struct{}) ([]store.Change, error) {
	for key, err := range (pipeline.KnownObjects{Collection: c}).Keys() {
		if err != nil {
			return nil, err
		}
		if _, ok := stays[key]; !ok {
			changes = append(changes, store.Change{Key: key})
		}
	}
	return changes, nil
}

// Resync does nothing: only a queue needs it.
func (x *Indexer) Resync() error { return nil }

// LastStoreSyncResourceVersion returns the resourceVersion of the newest write or Bookmark. Without
// any, and once an informer has run, it returns the one at which the stored objects are complete;
// empty if there was no complete list.
func (x *Indexer) LastStoreSyncResourceVersion() string {
	if !x.fed.Load() {
		x.writing.Lock()
		rv, written := x.rv, x.written
		x.writing.Unlock()
		if written {
			return rv
		}
	}
	v, err := x.coll.View()
	if err != nil {
		x.failed(err)
		return ""
	}
	defer v.Close()
	return v.State().RV
}

// Bookmark sets the result of LastStoreSyncResourceVersion, in memory. Once an informer has run,
// Bookmark does nothing: the stored resourceVersion must never be ahead of the stored objects.
func (x *Indexer) Bookmark(rv string) {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.reachedLocked(rv)
}

// reachedLocked records the resourceVersion of a caller's write, with writing locked.
func (x *Indexer) reachedLocked(rv string) {
	x.rv, x.written = rv, true
}
