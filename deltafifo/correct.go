package deltafifo

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
)

// Corrected is the type of the delta that [Queue.Correct] queues.
const Corrected cache.DeltaType = "Corrected"

// ErrChanged is returned for a correction that may be older than what the queue has got since, or
// that the queue has no space for. The caller has to fetch the server's state again.
var ErrChanged = errors.New("changed meanwhile")

// Correct queues the server's state of a key whose object at the consumer is corrupt or different:
// an object, or its absence if o is nil. at is the resourceVersion of the consumer's content before
// the state was read from the server. The consumer can apply it to any stored state: deltas that
// were queued before the correction are older, and later ones follow it. The watermark does not
// move, since the state may be newer than events that are still to come.
//
// Correct never waits. It fails with ErrChanged if anything was queued since at, because that may be
// a newer state of the key, such as a deletion that no later event repeats; also while a list is in
// the queue, and while the budget is used up.
func (q *Queue) Correct(key string, o *object.Object, at string) error {
	d := cache.Delta{Type: Corrected, Object: cache.DeletedFinalStateUnknown{Key: key}}
	if o != nil {
		if o.Key() != key {
			return fmt.Errorf("%s: the object is %s", key, o.Key())
		}
		d.Object = o
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.rv != at, !isCheckpoint(at), q.replace != nil, !q.fitsLocked(cost(key, d)):
		return fmt.Errorf("%s: %w", key, ErrChanged)
	}
	q.putLocked(key, d)
	return nil
}
