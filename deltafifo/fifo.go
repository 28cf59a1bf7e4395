package deltafifo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/internal/synced"
)

// DeltaFIFO is a Queue that can take the place of a [cache.DeltaFIFO] with KnownObjects and
// EmitDeltaTypeReplaced: see docs/library-reflector.md. Its consumer uses Pop, not PopBatch.
//
// It is in this package, and not around it, because Pop, Replace and Delete do under one lock what the
// methods of Queue do one by one.
type DeltaFIFO struct {
	*Queue
	known     KnownObjectsGetter // nil for none
	synced    *synced.Tracker
	waiting   map[string]struct{} // keys of the first list that were not processed; guarded by Queue.mu
	populated bool                // there was the first list, or there is none; guarded by Queue.mu
}

var _ cache.Queue = (*DeltaFIFO)(nil)

// NewDeltaFIFO returns an empty DeltaFIFO. Resync needs a [KnownObjectsGetter], and Replace and Delete use
// it.
func NewDeltaFIFO(opts Options) *DeltaFIFO {
	known, _ := opts.KnownObjects.(KnownObjectsGetter)
	return &DeltaFIFO{Queue: New(opts), known: known, synced: synced.New("deltafifo")}
}

// KnownObjectsGetter is a [KnownObjects] that returns the objects too, or an error if an object
// exists and can't be read.
type KnownObjectsGetter interface {
	KnownObjects
	cache.KeyGetter
}

// KnownStore returns the content of one of client-go's stores, such as a [cache.Indexer].
func KnownStore(s cache.KeyListerGetter) KnownObjectsGetter { return knownStore{s} }

type knownStore struct{ cache.KeyListerGetter }

func (k knownStore) Version(key string) (uid, rv string, ok bool, err error) {
	obj, ok, err := k.GetByKey(key)
	if err != nil || !ok {
		return "", "", false, err
	}
	uid, rv = identity(obj)
	return uid, rv, true, nil
}

func (k knownStore) Keys() iter.Seq2[string, error] { return inOrder(slices.Values(k.ListKeys())) }

// inOrder returns keys in order, without an error.
func inOrder(keys iter.Seq[string]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, key := range slices.Sorted(keys) {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// Start is [Queue.Start]. There is then no first list to wait for.
func (q *DeltaFIFO) Start(rv string) {
	q.Queue.Start(rv)
	if isCheckpoint(rv) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.populateLocked()
	}
}

// Add is [Queue.Add].
func (q *DeltaFIFO) Add(obj any) error { return q.event(cache.Added, obj, q.skipLocked) }

// Update is [Queue.Update].
func (q *DeltaFIFO) Update(obj any) error { return q.event(cache.Updated, obj, q.skipLocked) }

// Delete is [Queue.Delete]. If the consumer does not hold the object, and no delta of the key is queued,
// only the resourceVersion is used.
func (q *DeltaFIFO) Delete(obj any) error { return q.event(cache.Deleted, obj, q.skipLocked) }

// skipLocked notes an event, and reports whether it is the delete of an object that is not there.
func (q *DeltaFIFO) skipLocked(t cache.DeltaType, key string) bool {
	if !q.listPending {
		q.populateLocked()
	}
	if t != cache.Deleted || q.known == nil {
		return false
	}
	_, ok, queued, err := q.heldLocked(key)
	return !ok && !queued && err == nil
}

// heldLocked returns the object that the consumer holds under key. If a delta of the key is queued, it
// returns only queued. It unlocks the queue while it reads the store; if anything is queued meanwhile, it
// reads again, because an old object must not follow a delete.
func (q *DeltaFIFO) heldLocked(key string) (obj any, ok, queued bool, err error) {
	for q.items[key] == nil {
		before := q.pushes
		q.mu.Unlock()
		obj, ok, err = q.known.GetByKey(key)
		q.mu.Lock()
		if q.pushes == before {
			return obj, ok, false, err
		}
	}
	return nil, false, true, nil
}

// Replace queues a whole list: its items as Replaced, whether they changed or not, then a delete
// for each key that is queued or known and not in the list. It waits neither for the consumer nor
// for space in the queue, and [Queue.Pop] returns the list item by item. Use [Queue.BeginReplace]
// for a list of any size. The watermark does not move until the last key of the list is taken.
func (q *DeltaFIFO) Replace(list []any, rv string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.afterReplaceLocked(); err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	listed := make(map[string]struct{}, len(list))
	for _, obj := range list {
		key, err := KeyOf(obj)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnusable, cache.KeyError{Obj: obj, Err: err})
		}
		if obj, err = q.transform(obj); err != nil {
			return fmt.Errorf("replace %s: %w", key, err)
		}
		listed[key] = struct{}{}
		q.putLocked(key, cache.Delta{Type: cache.Replaced, Object: obj})
	}
	if err := q.deleteMissingLocked(listed); err != nil {
		return err
	}
	q.populateLocked(q.order...)
	if rv != "" {
		q.rv = rv
		q.changed.Broadcast()
	}
	return nil
}

// deleteMissingLocked queues a delete for each key that is queued or known and not listed.
func (q *DeltaFIFO) deleteMissingLocked(listed map[string]struct{}) error {
	for _, key := range q.order {
		if _, ok := listed[key]; ok {
			continue
		}
		final := q.items[key].deltas.Newest().Object
		if d, ok := final.(cache.DeletedFinalStateUnknown); ok {
			final = d.Obj
		}
		q.putLocked(key, cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: key, Obj: final}})
	}
	if q.opts.KnownObjects == nil {
		return nil
	}
	for key, err := range q.opts.KnownObjects.Keys() {
		if err != nil {
			return fmt.Errorf("keys of the store: %w", err)
		}
		if _, ok := listed[key]; ok || q.items[key] != nil {
			continue
		}
		d := cache.DeletedFinalStateUnknown{Key: key}
		if q.known != nil {
			// An object that can't be read is deleted too.
			if obj, ok, err := q.known.GetByKey(key); ok && err == nil {
				d.Obj = obj
			}
		}
		q.putLocked(key, cache.Delta{Type: cache.Deleted, Object: d})
	}
	return nil
}

// Pop waits for a key and passes its deltas to process. process runs under the queue's lock: it
// must not call the queue, and a change that it makes in the store becomes visible together with
// the queue's. After Close, Pop returns the pending deltas and then [cache.ErrFIFOClosed].
func (q *DeltaFIFO) Pop(process cache.PopProcessFunc) (any, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		b, err := q.nextLocked(context.Background(), 1)
		if errors.Is(err, ErrClosed) {
			return nil, cache.ErrFIFOClosed
		}
		if err != nil {
			return nil, err
		}
		var deltas cache.Deltas
		if len(b.Deltas) > 0 { // else the batch is only a bookmark, a flush or the end of a list
			deltas = b.Deltas[0].Deltas
			err = process(deltas, !q.HasSynced())
			if _, first := q.waiting[b.Deltas[0].Key]; first {
				delete(q.waiting, b.Deltas[0].Key)
				q.synced.Finished()
			}
		}
		q.finishLocked()
		if b.ListDone {
			q.populateLocked()
		}
		if deltas != nil {
			return deltas, err
		}
	}
}

// Resync queues a Sync for each object that the consumer holds, so that the consumer handles the
// object again. Queued keys are left out: the consumer handles them anyway. Resync reads the store,
// never the server, and waits while the budget is used up or a list is in the queue. Without a
// [KnownObjectsGetter] it does nothing.
func (q *DeltaFIFO) Resync() error {
	if q.known == nil {
		return nil
	}
	for key, err := range q.known.Keys() {
		if err != nil {
			return fmt.Errorf("resync: keys of the store: %w", err)
		}
		if err := q.sync(key); err != nil {
			return fmt.Errorf("resync %s: %w", key, err)
		}
	}
	return nil
}

// sync queues a Sync delta for one key, unless the consumer is about to get a delta of the key or
// has no object under it.
func (q *DeltaFIFO) sync(key string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if err := q.afterReplaceLocked(); err != nil {
			return err
		}
		obj, ok, _, err := q.heldLocked(key)
		if err != nil || !ok {
			return err
		}
		if q.replace == nil {
			return q.pushLocked(key, cache.Delta{Type: cache.Sync, Object: obj})
		}
	}
}

// IsClosed reports whether Close was called.
func (q *DeltaFIFO) IsClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Transformer returns Options.Transformer.
func (q *DeltaFIFO) Transformer() cache.TransformFunc { return q.opts.Transformer }

// populateLocked records the keys of the first list, none if there is no first list. Only the first call
// counts.
func (q *DeltaFIFO) populateLocked(keys ...string) {
	if q.populated {
		return
	}
	q.populated = true
	q.waiting = make(map[string]struct{}, len(keys))
	for _, key := range keys {
		if _, twice := q.waiting[key]; !twice {
			q.waiting[key] = struct{}{}
			q.synced.Start()
		}
	}
	q.synced.Named()
}

// HasSynced reports whether the consumer has finished with the first list, or events or a checkpoint
// came first.
func (q *DeltaFIFO) HasSynced() bool { return q.synced.HasSynced() }

// HasSyncedChecker returns HasSynced as a channel.
func (q *DeltaFIFO) HasSyncedChecker() cache.DoneChecker { return q.synced }
