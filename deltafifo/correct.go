package deltafifo

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
)

// Corrected is the type of the delta that [Attention.Correct] queues.
const Corrected cache.DeltaType = "Corrected"

// ErrChanged is returned if another delta of the key was queued since Attend.
var ErrChanged = errors.New("the key has changed meanwhile")

// Attention watches one key of a queue for deltas. It makes it safe to correct an object that the
// consumer can read and that differs from the server's: see [Attention.Correct].
type Attention struct {
	q       *Queue
	key     string
	changed bool
}

// Attend begins to watch a key for deltas. The caller must close the Attention.
func (q *Queue) Attend(key string) *Attention {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := &Attention{q: q, key: key}
	if q.attended == nil {
		q.attended = map[*Attention]struct{}{}
	}
	q.attended[a] = struct{}{}
	return a
}

// Close ends the Attention. A second call does nothing.
func (a *Attention) Close() {
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	delete(a.q.attended, a)
}

// Changed reports whether a delta of the key was queued since Attend, other than that of Correct,
// or a list has begun.
func (a *Attention) Changed() bool {
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	return a.changed
}

// Correct queues the server's state of the key: an object, or its absence if o is nil. The caller
// must have read that state after Attend. Then the consumer can apply it to any stored state:
// deltas that were queued before are older, and those that are queued later come behind it. A delta
// that was queued in between may be newer, such as a deletion that no later event repeats: Correct
// then fails with ErrChanged.
//
// It does not move the watermark. Other errors are those of [Queue.Repair].
func (a *Attention) Correct(o *object.Object) error {
	d := cache.Delta{Type: Corrected, Object: cache.DeletedFinalStateUnknown{Key: a.key}}
	if o != nil {
		if o.Key() != a.key {
			return fmt.Errorf("correct %s with %s", a.key, o.Key())
		}
		d.Object = o
	}
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	if a.changed {
		return fmt.Errorf("correct %s: %w", a.key, ErrChanged)
	}
	if err := a.q.pushNow(a.key, d); err != nil {
		return fmt.Errorf("correct %s: %w", a.key, err)
	}
	a.changed = false // the delta was the correction itself
	return nil
}

// trip marks each Attention of the key as changed, or every one if key is empty. The caller holds
// the lock.
func (q *Queue) trip(key string) {
	for a := range q.attended {
		a.changed = a.changed || key == "" || a.key == key
	}
}
