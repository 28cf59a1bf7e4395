package deltafifo

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
)

const (
	// Repaired is the type of the delta that [Queue.Repair] queues.
	Repaired cache.DeltaType = "Repaired"

	// Corrected is the type of the delta that [Queue.Correct] queues.
	Corrected cache.DeltaType = "Corrected"
)

// ErrChanged is returned if an event was queued since the resourceVersion that the caller knows.
var ErrChanged = errors.New("changed meanwhile")

// Repair queues the server's state of a key that the consumer can't read any more: an object, or
// its absence if o is nil. The consumer may apply it only if it still can't read the key and took
// no other delta of the key since: the fetched state may be older than an event that arrived in
// between.
//
// The fetched state may also be newer than events that are still to come, so the watermark does not
// move. Repair fails with ErrReplacing while a list is in the queue, since the list has the key in
// any case, and with ErrFull while the budget is used up: it never waits, so that its delta is
// never queued after a later list.
func (q *Queue) Repair(key string, o *object.Object) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pushState(Repaired, key, o)
}

// Correct queues the server's state of a key whose object at the consumer is readable but
// different. at is the resourceVersion of the consumer's content before the state was read from the
// server. The consumer can apply it to any stored state: deltas that were queued before the
// correction are older, and later ones follow it. If anything was queued since at, Correct fails
// with ErrChanged, because that may be a newer state of the key, such as a deletion that no later
// event repeats. Other errors are those of Repair.
func (q *Queue) Correct(key string, o *object.Object, at string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rv != at || !isCheckpoint(at) {
		return fmt.Errorf("%s: %w", key, ErrChanged)
	}
	return q.pushState(Corrected, key, o)
}

// pushState appends a delta that is not an event, or fails if the budget is used up. The caller
// holds the lock.
func (q *Queue) pushState(t cache.DeltaType, key string, o *object.Object) error {
	d := cache.Delta{Type: t, Object: cache.DeletedFinalStateUnknown{Key: key}}
	if o != nil {
		if o.Key() != key {
			return fmt.Errorf("%s: the object is %s", key, o.Key())
		}
		d.Object = o
	}
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
