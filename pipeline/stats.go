package pipeline

import (
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// Stats counts the reports of a collection's reflector and loop. It is an observer of the one and a
// [Sink] of the other, and is safe for concurrent use.
type Stats struct {
	clock clock.PassiveClock

	mu sync.Mutex
	c  Counters
}

// Counters are the counts of a Stats, and the newest reported states.
type Counters struct {
	Phase   reflector.Phase
	Problem error     // why the collection is not caught up
	Store   error     // why the store refuses changes
	Watched time.Time // newest proof in this process that the collection is complete; with the monotonic reading
	Ended   time.Time // end of the newest watch that has ended

	Lists     map[store.Reason]int64
	Listing   store.Reason // of the list in progress; empty for none
	ListSince time.Time
	Read      int64 // objects of that list
	Remaining int64 // objects of that list, -1 if unknown

	Resumes  int64
	HeldBack int64 // deletions that were held back
	Events   map[watch.EventType]int64
	Failures map[upstream.ErrorClass]int64
	Skipped  int64
	Counts   store.Counts

	began     time.Time    // when the stats were made
	untrusted store.Reason // why the stored objects are not the server's; valid until a list replaces them
	replaced  bool         // the list that replaces them is queued
	proof     proof
}

// NewStats returns stats of a pipeline that has not started.
func NewStats(c clock.PassiveClock) *Stats {
	return &Stats{clock: c, c: Counters{
		began: c.Now(), Phase: reflector.PhaseStarting, Lists: map[store.Reason]int64{},
		Events: map[watch.EventType]int64{}, Failures: map[upstream.ErrorClass]int64{},
	}}
}

// Counters returns a copy of the counters.
func (s *Stats) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.c
	c.Lists, c.Events, c.Failures = maps.Clone(c.Lists), maps.Clone(c.Events), maps.Clone(c.Failures)
	return c
}

// Watching reports whether the watch is open, and gave no reason for doubt.
func (s *Stats) Watching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c.watching()
}

// Open reports whether the watch is open, or one has ended a short time ago; trusted reports whether it
// gave no reason for doubt, too.
func (s *Stats) Open(short time.Duration) (open, trusted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open = s.c.watchOpen() || !s.c.Ended.IsZero() && s.clock.Since(s.c.Ended) < short
	return open, open && s.c.proof.doubt == nil
}

func (c *Counters) watchOpen() bool { return c.Phase == reflector.PhaseWatching }

func (c *Counters) watching() bool { return c.watchOpen() && c.proof.doubt == nil }

// proven notes a proof of the state at a time.
func (c *Counters) proven(at time.Time) {
	if at.After(c.Watched) {
		c.Watched = at
	}
	if c.watching() {
		c.Problem = nil
	}
}

// doubted notes why the watch proves nothing any more.
func (c *Counters) doubted(err error) {
	if c.proof.doubt == nil {
		c.Failures[upstream.Classify(err)]++
	}
	c.proof.doubt, c.Problem = err, err
}

// Changes returns how many changes of objects were reported. It does not move with bookmarks.
func (s *Stats) Changes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.c.Counts.Changed())
}

// Untrusted returns why a guard refused the checkpoint, until a list has replaced the objects; empty
// if they are trusted. listPending is the queue's ListPending.
func (c Counters) Untrusted(listPending bool) store.Reason {
	if c.replaced && !listPending {
		return ""
	}
	return c.untrusted
}

// CaughtUp reports whether a collection is synced, its watch is open and gave no reason for doubt, and no
// list is pending.
// listPending is the queue's ListPending.
func (c Counters) CaughtUp(synced, listPending bool) bool {
	return synced && c.watching() && !listPending
}

// LastProven returns when a collection that is not caught up was last known to be complete, and how long
// ago that is at least: in this process or else at proven, which is the Proven of its stored state. The
// times of this process come first, because the clock may have been set since the other was stored.
func (c Counters) LastProven(now, proven time.Time) (at time.Time, atLeast time.Duration) {
	if !c.Watched.IsZero() {
		return c.Watched, now.Sub(c.Watched)
	}
	return proven, now.Sub(c.began)
}

// Age returns the age of a collection that is not caught up; see LastProven.
func (c Counters) Age(now, proven time.Time) clocks.Age {
	at, atLeast := c.LastProven(now, proven)
	return clocks.AgeOf(clocks.Stamp{At: at}, clocks.Stamp{At: now, Ran: atLeast})
}

// LastProven is [Counters.LastProven] without a copy.
func (s *Stats) LastProven(now, proven time.Time) (at time.Time, atLeast time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c.LastProven(now, proven)
}

func (s *Stats) update(f func(c *Counters)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.c)
}

// Phase implements [reflector.Observer].
func (s *Stats) Phase(p reflector.Phase, err error) {
	s.update(func(c *Counters) {
		if c.Phase == reflector.PhaseWatching && p != c.Phase {
			c.Ended = s.clock.Now()
		}
		c.Phase = p
		switch p {
		case reflector.PhaseWaiting:
			c.Problem, c.Listing = err, ""
			kind := upstream.Classify(err)
			if kind != "" {
				c.Failures[kind]++
			}
			if kind == upstream.Expired {
				c.Ended = time.Time{} // changes are known to be missing
			}
			if list, ok := errors.AsType[*reflector.MassDeleteError](err); ok {
				c.HeldBack += int64(list.Deletions)
			}
			if errors.Is(err, upstream.ErrSilent) {
				c.proof.doubt = err // the next watch may be held, too
			}
		case reflector.PhaseWatching:
			c.Problem, c.Listing = c.proof.doubt, ""
			if now := s.clock.Now(); c.proof.began(now) {
				c.proven(now)
			}
		}
	})
}

// Listing implements [reflector.Observer].
func (s *Stats) Listing(reason store.Reason, read, remaining int64) {
	s.update(func(c *Counters) {
		if c.Listing == "" {
			c.ListSince = s.clock.Now()
		}
		c.Listing, c.Read, c.Remaining = reason, read, remaining
	})
}

// Listed implements [reflector.Observer].
func (s *Stats) Listed(reason store.Reason, _ string, _ int64, _ time.Duration) {
	s.update(func(c *Counters) {
		c.Lists[reason]++
		c.Listing, c.replaced, c.proof.ahead, c.proof.doubt = "", true, "", nil
	})
}

// Refused implements [reflector.Observer]. Unless the reason still trusts the stored versions, the
// stored objects are of another history, or were made by other rules.
func (s *Stats) Refused(reason store.Reason, _ error) {
	s.update(func(c *Counters) {
		if !reason.TrustsVersions() {
			c.untrusted, c.replaced = reason, false
		}
	})
}

// Resumed implements [reflector.Observer].
func (s *Stats) Resumed(string) { s.update(func(c *Counters) { c.Resumes++ }) }

// Event implements [reflector.Observer].
func (s *Stats) Event(t watch.EventType, rv string) {
	s.update(func(c *Counters) {
		c.Events[t]++
		if now := s.clock.Now(); c.proof.event(rv, now) {
			c.proven(now)
		}
	})
}

// Skipped implements [reflector.Observer].
func (s *Stats) Skipped(error) { s.update(func(c *Counters) { c.Skipped++ }) }

// Wanted implements [Sink]: counts need no transitions.
func (s *Stats) Wanted(bool) bool { return false }

// Commit implements [Sink].
func (s *Stats) Commit(x store.Changeset, apply func() error) error {
	if err := apply(); err != nil {
		return err
	}
	s.update(func(c *Counters) {
		c.Counts.Add(x.Counts)
		if c.proof.doubt == nil && !x.Began.IsZero() {
			c.proven(x.Began)
		}
	})
	return nil
}

// StoreFailed notes why the store refuses changes, nil if it does not: see [LoopOptions].StoreFailed.
func (s *Stats) StoreFailed(err error) { s.update(func(c *Counters) { c.Store = err }) }
