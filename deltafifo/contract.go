package deltafifo

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// A Queue can take the place of a cache.DeltaFIFO with KnownObjects and EmitDeltaTypeReplaced, by the
// methods in this file: see docs/library-reflector.md.
var (
	_ cache.Queue             = (*Queue)(nil)
	_ cache.TransformingStore = (*Queue)(nil)
)

// Replace queues a whole list: its items as Replaced, whether they changed or not, then a delete
// for each key that is queued or known and not in the list. It waits neither for the consumer nor
// for space in the queue, and [Queue.Pop] returns the list item by item. Use [Queue.BeginReplace]
// for a list of any size. The watermark does not move until the last key of the list is taken.
func (q *Queue) Replace(list []any, rv string) error {
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
func (q *Queue) deleteMissingLocked(listed map[string]struct{}) error {
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
	known, err := q.opts.KnownObjects.Keys()
	if err != nil {
		return fmt.Errorf("keys of the store: %w", err)
	}
	for _, key := range known {
		if _, ok := listed[key]; ok || q.items[key] != nil {
			continue
		}
		d := cache.DeletedFinalStateUnknown{Key: key}
		if k, ok := q.opts.KnownObjects.(KnownObjectsGetter); ok {
			// An object that can't be read is deleted too.
			if obj, ok, err := k.GetByKey(key); ok && err == nil {
				d.Obj = obj
			}
		}
		q.putLocked(key, cache.Delta{Type: cache.Deleted, Object: d})
	}
	return nil
}

// Pop waits for a key and passes its deltas to process. process runs under the queue's lock: it
// must not call the queue, and a change that it makes in the store becomes visible together with
// the queue's. After Close, Pop returns the pending deltas and then [cache.ErrFIFOClosed]. A queue
// has one kind of consumer: Pop or PopBatch.
func (q *Queue) Pop(process cache.PopProcessFunc) (any, error) {
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
		if len(b.Deltas) == 0 {
			continue // the batch is only a bookmark, a flush or the end of a list
		}
		deltas := b.Deltas[0].Deltas
		err = process(deltas, !q.HasSynced())
		q.finishLocked()
		return deltas, err
	}
}

// Resync queues a Sync for each object that the consumer holds, so that the consumer handles the
// object again. Keys that are queued or with the consumer are left out: the consumer handles them
// anyway. Resync reads the store, never the server, and waits while the budget is used up or a list
// is in the queue. Without [KnownObjectsGetter] it does nothing.
func (q *Queue) Resync() error {
	known, ok := q.opts.KnownObjects.(KnownObjectsGetter)
	if !ok {
		return nil
	}
	keys, err := known.Keys()
	if err != nil {
		return fmt.Errorf("resync: keys of the store: %w", err)
	}
	for _, key := range keys {
		if err := q.syncLocked(known, key); err != nil {
			return fmt.Errorf("resync %s: %w", key, err)
		}
	}
	return nil
}

// syncLocked queues a Sync delta for one key, unless the consumer is about to get a delta of the key or
// has no object under it.
func (q *Queue) syncLocked(known KnownObjectsGetter, key string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if err := q.afterReplaceLocked(); err != nil {
			return err
		}
		obj, ok, _, err := q.heldLocked(known, key)
		if err != nil || !ok {
			return err
		}
		if q.replace == nil {
			return q.pushLocked(key, cache.Delta{Type: cache.Sync, Object: obj})
		}
	}
}

// IsClosed reports whether Close was called.
func (q *Queue) IsClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Transformer returns Options.Transformer.
func (q *Queue) Transformer() cache.TransformFunc { return q.opts.Transformer }

// populateLocked records the keys of the first list, none if there is no first list. Only the first call
// counts.
func (q *Queue) populateLocked(keys ...string) {
	if q.populated {
		return
	}
	q.populated = true
	for _, key := range keys {
		q.synced.Start(key)
	}
	q.synced.UpstreamHasSynced()
}

// HasSynced reports whether the consumer has finished with the first list, or events or a checkpoint
// came first.
func (q *Queue) HasSynced() bool { return q.synced.HasSynced() }

// HasSyncedChecker returns HasSynced as a channel.
func (q *Queue) HasSyncedChecker() cache.DoneChecker { return q.synced }
