package deltafifo

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
)

// Repaired is the type of the delta that [Queue.Repair] queues.
const Repaired cache.DeltaType = "Repaired"

// Repair queues the server's state of a key that the consumer can't read any more: an object, or
// its absence if o is nil. The consumer may apply it only if it still can't read the key and took
// no other delta of the key since: the fetched state may be older than an event that came in
// between.
//
// The fetched state may also be newer than events that are still to come, so the watermark does not
// move. Repair fails with ErrReplacing while a list is in the queue, since the list has the key in
// any case, and with ErrFull while the budget is used up: it never waits, so that its delta never
// lands behind a later list.
func (q *Queue) Repair(key string, o *object.Object) error {
	d := cache.Delta{Type: Repaired, Object: cache.DeletedFinalStateUnknown{Key: key}}
	if o != nil {
		if o.Key() != key {
			return fmt.Errorf("repair %s with %s", key, o.Key())
		}
		d.Object = o
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.pushNow(key, d); err != nil {
		return fmt.Errorf("repair %s: %w", key, err)
	}
	return nil
}

// pushNow appends a delta that is no event, or fails if there is no room. The caller holds the
// lock.
func (q *Queue) pushNow(key string, d cache.Delta) error {
	switch {
	case q.closed:
		return ErrClosed
	case q.replace != nil:
		return ErrReplacing
	case !q.fits(cost(key, d)):
		return ErrFull
	}
	q.put(key, d)
	return nil
}
