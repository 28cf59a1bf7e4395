package deltafifo

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// A Queue can take the place of a cache.DeltaFIFO with KnownObjects and EmitDeltaTypeReplaced in
// client-go's informers. The methods in this file serve that purpose; docs/library-reflector.md
// compares the two.
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
	deleted, err := q.deleteMissingLocked(listed)
	if err != nil {
		return err
	}
	q.populate(len(listed) + deleted)
	if rv != "" {
		q.rv = rv
		q.changed.Broadcast()
	}
	return nil
}

// deleteMissingLocked queues a delete for each key that is queued or known and not listed.
func (q *Queue) deleteMissingLocked(listed map[string]struct{}) (deleted int, err error) {
	for _, key := range q.order {
		if _, ok := listed[key]; ok {
			continue
		}
		final := q.items[key].deltas.Newest().Object
		if d, ok := final.(cache.DeletedFinalStateUnknown); ok {
			final = d.Obj
		}
		q.putLocked(key, cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: key, Obj: final}})
		deleted++
	}
	if q.opts.KnownObjects == nil {
		return deleted, nil
	}
	known, err := q.opts.KnownObjects.Keys()
	if err != nil {
		return 0, fmt.Errorf("keys of the store: %w", err)
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
		deleted++
	}
	return deleted, nil
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
		err = process(deltas, !q.synced)
		q.finishLocked()
		return deltas, err
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

// initial is the progress of the first list.
type initial struct {
	populated bool          // the number of keys in the first list is known
	left      int           // keys of the first list that were not popped
	ended     bool          // the newest batch was the last part of a list
	synced    bool          // the consumer has finished with the first list
	done      chan struct{} // closed with synced
}

// populate records the number of keys in the first list, 0 if there is no first list. Only the
// first call counts.
func (i *initial) populate(keys int) {
	if !i.populated {
		i.populated, i.left = true, keys
		i.check()
	}
}

// check closes done once the consumer has finished with the first list.
func (i *initial) check() {
	if i.populated && i.left == 0 && !i.synced {
		i.synced = true
		close(i.done)
	}
}

// HasSynced reports whether the consumer has finished with the first list, or events or a checkpoint
// came first.
func (q *Queue) HasSynced() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.synced
}

// HasSyncedChecker returns HasSynced as a channel.
func (q *Queue) HasSyncedChecker() cache.DoneChecker { return checker{q.done} }

type checker struct{ done <-chan struct{} }

func (checker) Name() string            { return "deltafifo" }
func (c checker) Done() <-chan struct{} { return c.done }
