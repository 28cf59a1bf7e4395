package agent

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// tracker notes what one collection's reflector and loop report. It is what
// status and metrics are read from, and safe for concurrent use.
type tracker struct {
	reflector.Silent

	clock clock.PassiveClock
	log   *slog.Logger

	began time.Time

	mu      sync.Mutex
	seen    seen
	hour    minutes
	changed chan struct{} // closed at the next change of what is stored; nil where nobody waits
}

// seen is what a tracker knows.
type seen struct {
	phase     reflector.Phase
	problem   error        // why it is not in step
	store     error        // why the store refuses changes
	untrusted store.Reason // why what is stored is not to be relied on, until a list is stored
	replaced  bool         // such a list is queued
	verdict   string
	lastStep  time.Time // when it was last in step, unless it is now
	resumes   int64
	heldBack  int64 // deletions
	lists     map[store.Reason]int64
	listing   store.Reason // the list that is under way
	listSince time.Time
	read      int64
	remaining int64
	events    map[watch.EventType]int64
	hour      []int64 // events of the last hour by the minute; bookmarks are none
	failures  map[upstream.ErrorKind]int64
	skipped   int64
	counts    informer.Counts

	refused time.Duration   // for how long it has been forbidden, where it would be purged for it
	purges  int64           // of this process
	purge   *localapi.Purge // the newest; not changed any more

	drifts       map[driftKind]int64
	verification *localapi.Verification // the newest; not changed any more
	verifiedAt   time.Time              // when one was last complete
}

var (
	_ reflector.Observer = (*tracker)(nil)
	_ informer.Observer  = (*tracker)(nil)
)

func newTracker(c clock.PassiveClock, log *slog.Logger) *tracker {
	return &tracker{clock: c, log: log, began: c.Now(), seen: seen{
		phase: reflector.PhaseStarting,
		lists: map[store.Reason]int64{}, events: map[watch.EventType]int64{}, drifts: map[driftKind]int64{},
		failures: map[upstream.ErrorKind]int64{},
	}}
}

// get returns a copy of what is known.
func (t *tracker) get() seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen
	s.lists, s.events, s.drifts = maps.Clone(s.lists), maps.Clone(s.events), maps.Clone(s.drifts)
	s.failures, s.hour = maps.Clone(s.failures), t.hour.last(t.clock.Since(t.began))
	return s
}

func (t *tracker) note(f func(*seen)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.seen)
}

// Phase notes a change of phase.
func (t *tracker) Phase(p reflector.Phase, err error) {
	t.note(func(s *seen) {
		if s.phase == reflector.PhaseWatching && p != s.phase {
			s.lastStep = t.clock.Now()
		}
		s.phase = p
		switch p {
		case reflector.PhaseWaiting:
			s.problem, s.listing = err, ""
			if kind := upstream.Kind(err); kind != "" {
				s.failures[kind]++
			}
		case reflector.PhaseWatching:
			s.problem, s.listing = nil, ""
		}
	})
}

// Listing notes the progress of a list.
func (t *tracker) Listing(reason store.Reason, read, remaining int64) {
	t.note(func(s *seen) {
		if s.listing == "" {
			s.listSince = t.clock.Now()
		}
		s.listing, s.read, s.remaining = reason, read, remaining
	})
}

// Listed notes a complete list.
func (t *tracker) Listed(reason store.Reason, _ string, _ int64, _ time.Duration) {
	t.note(func(s *seen) { s.lists[reason]++; s.listing, s.replaced = "", true })
}

// Refused notes why a list is needed. What is stored is of another history, or made by
// other rules, unless the reason still trusts the versions in it.
func (t *tracker) Refused(reason store.Reason, _ error) {
	t.note(func(s *seen) {
		if !reason.TrustsVersions() {
			s.untrusted, s.replaced = reason, false
		}
	})
}

// HeldBack notes deletions that wait for a second list.
func (t *tracker) HeldBack(deletions int) { t.note(func(s *seen) { s.heldBack += int64(deletions) }) }

// Resumed notes a watch that goes on where it stopped.
func (t *tracker) Resumed(string) { t.note(func(s *seen) { s.resumes++ }) }

// Event notes a watch event.
func (t *tracker) Event(e watch.EventType, _ string) {
	t.note(func(s *seen) {
		s.events[e]++
		if e != watch.Bookmark {
			t.hour.add(t.clock.Since(t.began))
		}
	})
}

// Skipped notes something unusable from the server.
func (t *tracker) Skipped(err error) {
	t.note(func(s *seen) { s.skipped++ })
	t.log.Warn("skipped what the server sent", "error", err)
}

// nextChange returns a channel that is closed at the next change of what is stored.
func (t *tracker) nextChange() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// gone wakes those who wait for a change of a collection that is no more.
func (t *tracker) gone() { t.note(func(*seen) { t.wake() }) }

// wake is for whoever holds the lock.
func (t *tracker) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// Applied notes a batch that is stored, and wakes those who wait for it.
func (t *tracker) Applied(c informer.Counts, _ time.Duration) {
	t.note(func(s *seen) {
		t.wake()
		s.counts.Added += c.Added
		s.counts.Updated += c.Updated
		s.counts.Deleted += c.Deleted
		s.counts.Stale += c.Stale
	})
}

// StoreFailed notes whether the store works.
func (t *tracker) StoreFailed(err error) { t.note(func(s *seen) { s.store = err }) }

// drifted counts differences from the server that are real.
func (t *tracker) drifted(k driftKind, n int64) { t.note(func(s *seen) { s.drifts[k] += n }) }

// verified notes what came of a comparison with the server.
func (t *tracker) verified(v localapi.Verification) {
	t.note(func(s *seen) {
		s.verification = &v
		if v.Problem == "" {
			s.verifiedAt = v.Time
		}
	})
}

func (t *tracker) setVerdict(v string) { t.note(func(s *seen) { s.verdict = v }) }
