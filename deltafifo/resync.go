package deltafifo

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

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
		if q.pendingLocked(key) {
			return nil
		}
		// The store is read without the lock. While nothing is queued, the consumer can't change
		// the object; if a delta was queued meanwhile, the object is read again, because an old
		// object must not follow a delete.
		before := q.pushes
		q.mu.Unlock()
		obj, ok, err := known.GetByKey(key)
		q.mu.Lock()
		switch {
		case err != nil:
			return err
		case !ok:
			return nil
		case q.pushes != before || q.replace != nil:
			continue
		}
		return q.pushLocked(key, cache.Delta{Type: cache.Sync, Object: obj})
	}
}
