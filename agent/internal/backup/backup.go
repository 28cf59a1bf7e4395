// Package backup makes snapshots of the database, on a timer and on request.
package backup

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store/bolt"
)

// retryAfter is how long a schedule waits after a snapshot that failed, or if there is nothing to copy
// yet.
const retryAfter = 10 * time.Minute

// Snapshots makes snapshots of a database. A nil pointer stands for a store that has none.
type Snapshots struct {
	dir   snapshot.Dir
	db    *bolt.DB
	clock clock.Clock
	log   *slog.Logger

	wake chan struct{} // has a value once cfg was changed

	mu    sync.Mutex // guards the fields below
	cfg   config.Snapshots
	state localapi.SnapshotStatus
}

// New returns the snapshots of a database in a directory, with the schedule and the rotation of cfg.
func New(db *bolt.DB, dir snapshot.Dir, cfg config.Snapshots, c clock.Clock, log *slog.Logger) *Snapshots {
	s := &Snapshots{dir: dir, cfg: cfg, db: db, clock: c, log: log, wake: make(chan struct{}, 1)}
	s.state.Dir = s.dir.Path
	own, err := s.dir.Own()
	if err != nil {
		s.state.Problem = err.Error()
	}
	for _, x := range own {
		if x.Err == nil {
			s.note(&x)
			break
		}
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
	wait := s.due()
	for {
		if sleep.UnlessWoken(ctx, s.clock, wait, s.wake) != nil {
			return
		}
		if wait = s.due(); wait > 0 {
			continue // one was made on request meanwhile, or the schedule changed
		}
		wait = retryAfter
		if !collection.AnySynced(s.db) {
			continue
		}
		if _, err := s.Create(ctx, nil); err == nil {
			wait = s.due()
		}
	}
}

// Configure replaces the schedule and the rotation.
func (s *Snapshots) Configure(cfg config.Snapshots) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg = cfg
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Snapshots) config() config.Snapshots {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// due returns the time until the next snapshot; without a schedule a very long one. It counts from
// the newest snapshot, so that a restart makes none; a snapshot with a date in the future counts as
// new.
func (s *Snapshots) due() time.Duration {
	every := s.config().Interval.Duration
	if every == 0 {
		return config.MaxSnapshotAge
	}
	newest := s.Status().Newest
	if newest.IsZero() {
		return 0
	}
	age := max(0, s.clock.Since(newest))
	return max(0, every-age)
}

// Create makes a snapshot and removes old ones.
func (s *Snapshots) Create(ctx context.Context, progress snapshot.Progress) (*snapshot.Snapshot, error) {
	start := s.clock.Now()
	x, err := s.dir.Create(ctx, s.db, start, progress)
	s.mu.Lock()
	if err == nil {
		s.note(x)
		s.state.Made++
		s.state.Problem = ""
	} else if ctx.Err() == nil {
		s.state.Failed++
		s.state.Problem = err.Error()
	}
	s.mu.Unlock()
	if err != nil {
		s.log.Warn("no snapshot could be made", "error", err)
		return nil, err
	}
	s.log.Info("snapshot made", "name", x.Name, "bytes", x.Bytes, "objects", x.Manifest.Objects(), "took", s.clock.Since(start).Round(time.Millisecond))
	cfg := s.config()
	removed, err := s.dir.Prune(ctx, cfg.Keep, cfg.MaxAge.Duration, s.clock.Now())
	for _, r := range removed {
		s.log.Info("snapshot removed", "name", r.Name)
	}
	if err != nil && !errors.Is(err, snapshot.ErrBusy) {
		s.log.Warn("old snapshots could not be removed", "error", err) // the new one is good
	}
	return x, nil
}
