package collection

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// DriftKind is how a stored object differs from the server's.
type DriftKind string

// The kinds of drift.
const (
	DriftMissing DriftKind = "missing" // it is not stored
	DriftExtra   DriftKind = "extra"   // the server does not have it
	DriftStale   DriftKind = "stale"   // it is stored in another version
)

// DriftKinds returns all kinds of drift.
func DriftKinds() []DriftKind { return []DriftKind{DriftMissing, DriftExtra, DriftStale} }

// Tracker observes one collection's pipeline, and holds the other facts that status and metrics
// report. It is safe for concurrent use.
type Tracker struct {
	*counted
	clock    clock.PassiveClock
	progress *progress
	onPhase  func(reflector.Phase, error)

	began time.Time

	checks chan struct{} // has a value if the watch may have to be checked sooner

	mu      sync.Mutex
	stats   Stats // without the counters
	hour    eventRate
	changed chan struct{} // closed at the next change of the stored objects; nil if no one waits
}

// counted is another name for pipeline.Stats, because Tracker has a method Stats.
type counted = pipeline.Stats

// Stats are the counters of a collection's pipeline, and the facts that the agent's tasks report to
// its tracker.
type Stats struct {
	pipeline.Counters
	Verdict string
	Hour    []int64 // events of the last hour by the minute, without bookmarks

	ForbiddenFor time.Duration   // how long the server has forbidden the read; only for Secrets
	Purges       int64           // since the start of the process
	Purge        *localapi.Purge // the newest; immutable

	Drifts       map[DriftKind]int64
	Verification *localapi.Verification // the newest; immutable
	VerifiedAt   time.Time              // of the newest complete one
}

var (
	_ reflector.Observer = (*Tracker)(nil)
	_ pipeline.Sink      = (*Tracker)(nil)
)

// NewTracker returns a tracker of a pipeline that has not started.
func NewTracker(c clock.PassiveClock) *Tracker {
	return &Tracker{
		counted: pipeline.NewStats(c), clock: c, progress: &progress{clock: c}, onPhase: func(reflector.Phase, error) {},
		began: c.Now(), checks: make(chan struct{}, 1), stats: Stats{Drifts: map[DriftKind]int64{}},
	}
}

// Age returns the time since the tracker was made.
func (t *Tracker) Age() time.Duration { return t.clock.Since(t.began) }

// Stats returns a copy of the counts.
func (t *Tracker) Stats() Stats {
	counters := t.Counters()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Counters, s.Drifts, s.Hour = counters, maps.Clone(s.Drifts), t.hour.last(t.clock.Since(t.began))
	return s
}

func (t *Tracker) update(f func(*Stats)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.stats)
}

// Phase implements reflector.Observer.
func (t *Tracker) Phase(p reflector.Phase, err error) {
	t.counted.Phase(p, err)
	t.onPhase(p, err)
	t.wakeChecks()
}

// wakeChecks has the time of the next check of the watch computed again.
func (t *Tracker) wakeChecks() {
	select {
	case t.checks <- struct{}{}:
	default:
	}
}

// Event implements reflector.Observer.
func (t *Tracker) Event(e watch.EventType, rv string) {
	t.counted.Event(e, rv)
	if e != watch.Bookmark {
		t.update(func(*Stats) { t.hour.add(t.clock.Since(t.began)) })
	}
}

// NextChange returns a channel that is closed at the next change of the stored objects.
func (t *Tracker) NextChange() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// Awaited reports whether a goroutine waits for the next change.
func (t *Tracker) Awaited() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed != nil
}

// Wake wakes the goroutines that wait for a change, because there is one or because the collection
// was removed.
func (t *Tracker) Wake() {
	t.update(func(*Stats) {
		if t.changed != nil {
			close(t.changed)
			t.changed = nil
		}
	})
}

// Commit implements pipeline.Sink. It wakes the goroutines that wait for a change.
func (t *Tracker) Commit(c store.Changeset, apply func() error) error {
	err := t.counted.Commit(c, apply)
	if err == nil {
		t.Wake()
	}
	return err
}

// StoreFailed notes why the store refuses changes. A try that it refuses is a sign of life too.
func (t *Tracker) StoreFailed(err error) {
	t.progress.touch()
	t.counted.StoreFailed(err)
}

// Drifted counts a confirmed difference from the server.
func (t *Tracker) Drifted(k DriftKind) { t.update(func(s *Stats) { s.Drifts[k]++ }) }

// Verified notes the result of a comparison with the server.
func (t *Tracker) Verified(v localapi.Verification) {
	t.update(func(s *Stats) {
		s.Verification = &v
		if v.Problem == "" {
			s.VerifiedAt = v.Time
		}
	})
}

func (t *Tracker) setVerdict(v string) { t.update(func(s *Stats) { s.Verdict = v }) }

// SetForbiddenFor notes for how long the server has forbidden the collection.
func (t *Tracker) SetForbiddenFor(d time.Duration) { t.update(func(s *Stats) { s.ForbiddenFor = d }) }

// Purged notes that all stored objects of the collection were deleted.
func (t *Tracker) Purged(p localapi.Purge) {
	t.update(func(s *Stats) {
		s.ForbiddenFor = 0
		s.Purges++
		s.Purge = &p
	})
}

// minutesKept is how far back events are counted by the minute: an hour.
const minutesKept = 60

// eventRate counts events by the minute. Minutes count from the start of the agent, so that setting
// the clock does not move them.
type eventRate struct {
	counts [minutesKept]int64
	newest int64 // the last minute that has a count
}

// add counts an event.
func (r *eventRate) add(passed time.Duration) {
	r.advance(passed)
	r.counts[r.newest%minutesKept]++
}

// last returns the counts of the last hour, the oldest minute first. The last count is the
// current minute's.
func (r *eventRate) last(passed time.Duration) []int64 {
	r.advance(passed)
	all := make([]int64, minutesKept)
	for i := range all {
		all[i] = r.counts[(r.newest+1+int64(i))%minutesKept]
	}
	return all
}

// advance forgets the minutes that ended more than an hour ago.
func (r *eventRate) advance(passed time.Duration) {
	now := int64(passed / time.Minute)
	for r.newest = max(r.newest, now-minutesKept); r.newest < now; {
		r.newest++
		r.counts[r.newest%minutesKept] = 0
	}
}
