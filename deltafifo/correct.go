package deltafifo

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
)

// Corrected is the type of the delta that [Attention.Correct] queues.
const Corrected cache.DeltaType = "Corrected"

// ErrChanged says that something came of a key meanwhile.
var ErrChanged = errors.New("the key has changed meanwhile")

// Attention notices what is queued of one key. It is what makes it safe to put right
// what the consumer has wrong, although it can read it: see [Attention.Correct].
type Attention struct {
	q       *Queue
	key     string
	changed bool
}

// Attend begins to notice what is queued of a key. The caller must close it.
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

// Close ends it. Closing twice does nothing.
func (a *Attention) Close() {
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	delete(a.q.attended, a)
}

// Changed says that something else came of the key, besides what Correct queued.
func (a *Attention) Changed() bool {
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	return a.changed
}

// Correct queues what the server has under the key: an object, or its absence where o
// is nil. The server must have been asked after Attend. Then the consumer can take it
// whatever it has: what was queued before is older, what is queued later comes
// behind. What is queued in between may be newer, a deletion for one that nobody would
// tell of again: that is refused with ErrChanged.
//
// It moves no watermark, and is refused besides as [Queue.Repair] is.
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
	a.changed = false // that was the correction itself
	return nil
}

// notice tells those who attend to a key, or to any where it is empty. The caller
// holds the lock.
func (q *Queue) notice(key string) {
	for a := range q.attended {
		a.changed = a.changed || key == "" || a.key == key
	}
}
