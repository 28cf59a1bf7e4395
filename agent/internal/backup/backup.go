// Package backup makes snapshots of the database, on a timer and on request.
package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store/bolt"
)

const (
	// retryAfter is how long a schedule waits after a snapshot that failed, if there is nothing to copy
	// yet, or after the start if the age of the newest snapshot is unknown.
	retryAfter = 10 * time.Minute

	// slowAfter is how long a snapshot may take until that counts as a failure.
	slowAfter = time.Hour
)

var errSlow = fmt.Errorf("it takes more than %s: the disk may hang", slowAfter)

// Snapshots makes snapshots of a database. A nil pointer stands for a store that has none.
type Snapshots struct {
	dir   snapshot.Dir
	db    *bolt.DB
	clock clock.Clock
	log   *slog.Logger

	config func() (cfg config.Snapshots, changed <-chan struct{}) // see New

	began time.Time // when this process began to make snapshots

	mu    sync.Mutex // guards the rest
	state localapi.SnapshotStatus
	last  clocks.Stamp // when the snapshot was made that the schedule counts from
}

// New returns the snapshots of a database in a directory. cfg returns the schedule and the
// rotation, and a channel that is closed when they may have changed.
func New(db *bolt.DB, dir snapshot.Dir, cfg func() (config.Snapshots, <-chan struct{}), c clock.Clock, log *slog.Logger) *Snapshots {
	s := &Snapshots{dir: dir, config: cfg, db: db, clock: c, log: log, began: c.Now()}
	s.state.Dir = s.dir.Path
	own, err := s.dir.Own()
	if err != nil {
		s.state.Problem = err.Error()
	}
	own = slices.DeleteFunc(own, func(x snapshot.Snapshot) bool { return x.Err != nil })
	if len(own) > 0 {
		s.note(&own[0])
		s.last.At = own[0].Manifest.Created
	}
	// A wrong clock has dated the newest ones in the future: the schedule counts from an older one.
	if i := slices.IndexFunc(own, func(x snapshot.Snapshot) bool { return !x.Manifest.Created.After(s.began) }); i > 0 {
		s.last.At = own[i].Manifest.Created
	}
	return s
}

// note makes x the newest snapshot.
func (s *Snapshots) note(x *snapshot.Snapshot) {
	s.state.Name, s.state.Bytes, s.state.Newest = x.Name, x.Bytes, x.Manifest.Created
}

// Status returns the status of the snapshots; nil if the store has none.
func (s *Snapshots) Status() *localapi.SnapshotStatus {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	return &state
}

// Run makes snapshots on schedule until ctx ends.
func (s *Snapshots) Run(ctx context.Context) {
	if s == nil {
		return
	}
	var pause time.Duration // after a try without a snapshot
	for {
		cfg, changed := s.config()
		if sleep.UnlessWoken(ctx, s.clock, max(pause, s.due(cfg)), changed) != nil {
			return
		}
		pause = 0
		if cfg, _ = s.config(); s.due(cfg) > 0 {
			continue // one was made on request meanwhile, or the schedule changed
		}
		if !collection.AnySynced(s.db) {
			pause = retryAfter
		} else if _, err := s.Create(ctx, nil); err != nil {
			pause = retryAfter
		}
	}
}

// now returns the time by both clocks.
func (s *Snapshots) now() clocks.Stamp {
	now := s.clock.Now()
	return clocks.Stamp{At: now, Ran: now.Sub(s.began)}
}

// due returns the time until the next snapshot; without a schedule a very long one. It counts from the
// newest snapshot, so that a restart makes none. If that has a later date than the start of this process,
// the clock is wrong or was. Then it counts from the start, and does not wait for the interval: a machine
// without a battery for its clock may be switched off before that each day.
func (s *Snapshots) due(cfg config.Snapshots) time.Duration {
	every := cfg.Interval.Duration
	if every == 0 {
		return config.MaxSnapshotAge
	}
	s.mu.Lock()
	last, before := s.last, s.state.Made == 0
	s.mu.Unlock()
	if last.At.IsZero() {
		return 0
	}
	now := s.now()
	age := clocks.AgeOf(last, now).Duration()
	if before && age <= now.Ran {
		every = min(every, retryAfter)
	}
	return max(0, every-age)
}

// Create makes a snapshot and removes old ones.
func (s *Snapshots) Create(ctx context.Context, progress snapshot.Progress) (*snapshot.Snapshot, error) {
	start := s.now()
	stop := s.watch()
	defer stop()
	x, err := s.dir.Create(ctx, s.db, start.At, progress)
	if err != nil {
		if ctx.Err() == nil {
			s.fail(err)
		}
		s.log.Warn(localapi.SnapshotFailed, "error", err)
		return nil, err
	}
	s.mu.Lock()
	s.note(x)
	s.last = start
	s.state.Made++
	s.mu.Unlock()
	s.log.Info("snapshot made", "name", x.Name, "bytes", x.Bytes, "objects", x.Manifest.Objects(),
		"took", s.clock.Since(start.At).Round(time.Millisecond))
	cfg, _ := s.config()
	removed, err := s.dir.Prune(ctx, cfg.Keep, cfg.MaxAge.Duration, cfg.Interval.Duration, s.clock.Now())
	for _, r := range removed {
		s.log.Info("snapshot removed", "name", r.Name)
	}
	if err != nil && !errors.Is(err, snapshot.ErrBusy) {
		s.log.Warn("old snapshots could not be removed", "error", err) // the new one is good
	}
	stop()
	s.mu.Lock()
	s.state.Problem = ""
	s.mu.Unlock()
	return x, nil
}

// fail counts a failure, and reports whether it is another one than the problem before.
func (s *Snapshots) fail(err error) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.state.Problem != err.Error()
	s.state.Failed++
	s.state.Problem = err.Error()
	return changed
}

// watch counts a failure each slowAfter until stop is called: nothing else would report that no snapshot
// is made because the disk hangs.
func (s *Snapshots) watch() (stop func()) {
	done := make(chan struct{})
	var task sync.WaitGroup
	task.Go(func() {
		timer := s.clock.NewTimer(slowAfter)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C():
				timer.Reset(slowAfter)
			}
			if s.fail(errSlow) {
				s.log.Warn(localapi.SnapshotFailed, "error", errSlow)
			}
		}
	})
	return sync.OnceFunc(func() { close(done); task.Wait() })
}
