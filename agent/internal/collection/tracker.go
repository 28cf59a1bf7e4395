package collection

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

// DriftKind is how what is stored differs from the server.
type DriftKind string

// The kinds of drift.
const (
	DriftMissing DriftKind = "missing" // it is not stored
	DriftExtra   DriftKind = "extra"   // the server does not have it
	DriftStale   DriftKind = "stale"   // it is stored in another version
)

// DriftKinds returns all of them.
func DriftKinds() []DriftKind { return []DriftKind{DriftMissing, DriftExtra, DriftStale} }

// Tracker counts what one collection's reflector and loop report, for status and metrics. It is safe
// for concurrent use.
type Tracker struct {
	reflector.Silent

	clock clock.PassiveClock
	log   *slog.Logger

	began time.Time

	mu      sync.Mutex
	stats   Stats
	hour    eventRate
	changed chan struct{} // closed at the next change of what is stored; nil if no one waits
}

// Stats are what a tracker has counted.
type Stats struct {
	Phase     reflector.Phase
	Problem   error        // why it is not up to date
	Store     error        // why the store refuses changes
	untrusted store.Reason // why what is stored is not to be relied on, until a list is stored
	replaced  bool         // such a list is queued
	Verdict   string
	LastStep  time.Time // when it was last up to date, unless it is now
	Resumes   int64
	HeldBack  int64 // deletions
	Lists     map[store.Reason]int64
	Listing   store.Reason // the list that is under way; empty for none
	ListSince time.Time
	Read      int64 // objects of that list
	Remaining int64 // objects of that list
	Events    map[watch.EventType]int64
	Hour      []int64 // events of the last hour by the minute, without bookmarks
	Failures  map[upstream.ErrorKind]int64
	Skipped   int64
	Counts    informer.Counts

	ForbiddenFor time.Duration   // counted only for what is purged for it
	Purges       int64           // of this process
	Purge        *localapi.Purge // the newest; immutable

	Drifts       map[DriftKind]int64
	Verification *localapi.Verification // the newest; immutable
	VerifiedAt   time.Time              // of the newest complete one
}

var (
	_ reflector.Observer = (*Tracker)(nil)
	_ informer.Observer  = (*Tracker)(nil)
)

// NewTracker returns a tracker. It logs what it skips.
func NewTracker(c clock.PassiveClock, log *slog.Logger) *Tracker {
	return &Tracker{clock: c, log: log, began: c.Now(), stats: Stats{
		Phase: reflector.PhaseStarting,
		Lists: map[store.Reason]int64{}, Events: map[watch.EventType]int64{}, Drifts: map[DriftKind]int64{},
		Failures: map[upstream.ErrorKind]int64{},
	}}
}

// Stats returns a copy of the counts.
func (t *Tracker) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Lists, s.Events, s.Drifts = maps.Clone(s.Lists), maps.Clone(s.Events), maps.Clone(s.Drifts)
	s.Failures, s.Hour = maps.Clone(s.Failures), t.hour.last(t.clock.Since(t.began))
	return s
}

func (t *Tracker) update(f func(*Stats)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.stats)
}

// Phase notes a change of phase.
func (t *Tracker) Phase(p reflector.Phase, err error) {
	t.update(func(s *Stats) {
		if s.Phase == reflector.PhaseWatching && p != s.Phase {
			s.LastStep = t.clock.Now()
		}
		s.Phase = p
		switch p {
		case reflector.PhaseWaiting:
			s.Problem, s.Listing = err, ""
			if kind := upstream.Kind(err); kind != "" {
				s.Failures[kind]++
			}
		case reflector.PhaseWatching:
			s.Problem, s.Listing = nil, ""
		}
	})
}

// Listing notes the progress of a list.
func (t *Tracker) Listing(reason store.Reason, read, remaining int64) {
	t.update(func(s *Stats) {
		if s.Listing == "" {
			s.ListSince = t.clock.Now()
		}
		s.Listing, s.Read, s.Remaining = reason, read, remaining
	})
}

// Listed notes a complete list.
func (t *Tracker) Listed(reason store.Reason, _ string, _ int64, _ time.Duration) {
	t.update(func(s *Stats) { s.Lists[reason]++; s.Listing, s.replaced = "", true })
}

// Refused notes why a list is needed. Unless the reason still trusts the versions in it, what is
// stored is of another history, or was made by other rules.
func (t *Tracker) Refused(reason store.Reason, _ error) {
	t.update(func(s *Stats) {
		if !reason.TrustsVersions() {
			s.untrusted, s.replaced = reason, false
		}
	})
}

// HeldBack notes deletions that wait for a second list.
func (t *Tracker) HeldBack(deletions int) {
	t.update(func(s *Stats) { s.HeldBack += int64(deletions) })
}

// Resumed notes a watch that goes on where it stopped.
func (t *Tracker) Resumed(string) { t.update(func(s *Stats) { s.Resumes++ }) }

// Event notes a watch event.
func (t *Tracker) Event(e watch.EventType, _ string) {
	t.update(func(s *Stats) {
		s.Events[e]++
		if e != watch.Bookmark {
			t.hour.add(t.clock.Since(t.began))
		}
	})
}

// Skipped notes something unusable from the server.
func (t *Tracker) Skipped(err error) {
	t.update(func(s *Stats) { s.Skipped++ })
	t.log.Warn("skipped what the server sent", "error", err)
}

// NextChange returns a channel that is closed at the next change of what is stored.
func (t *Tracker) NextChange() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// Gone wakes the goroutines that wait for a change of a collection that was removed.
func (t *Tracker) Gone() { t.update(func(*Stats) { t.wake() }) }

// wake wakes the goroutines that wait for a change. The caller holds mu.
func (t *Tracker) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// Applied notes a batch that is stored, and wakes the goroutines that wait for it.
func (t *Tracker) Applied(c informer.Counts, _ time.Duration) {
	t.update(func(s *Stats) {
		t.wake()
		s.Counts.Added += c.Added
		s.Counts.Updated += c.Updated
		s.Counts.Deleted += c.Deleted
		s.Counts.Stale += c.Stale
	})
}

// StoreFailed notes whether the store works.
func (t *Tracker) StoreFailed(err error) { t.update(func(s *Stats) { s.Store = err }) }

// Drifted counts differences from the server that are real.
func (t *Tracker) Drifted(k DriftKind, n int64) { t.update(func(s *Stats) { s.Drifts[k] += n }) }

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

// Purged notes that all that was stored of the collection was deleted.
func (t *Tracker) Purged(p localapi.Purge) {
	t.update(func(s *Stats) {
		s.ForbiddenFor = 0
		s.Purges++
		s.Purge = &p
	})
}
