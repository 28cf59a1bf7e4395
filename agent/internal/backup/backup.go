// Package backup makes snapshots of the database, on a timer and on request.
package backup

import (
	"context"
	"errors"
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

// retryAfter is how long a schedule waits after a snapshot that failed, or if there is nothing to
// copy yet.
const retryAfter = 10 * time.Minute

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
	last  time.Time // when the snapshot was made that the schedule counts from; monotonic if in this process
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
		s.last = own[0].Manifest.Created
	}
	// A wrong clock has dated the newest ones in the future: the schedule counts from an older one.
	if i := slices.IndexFunc(own, func(x snapshot.Snapshot) bool { return !x.Manifest.Created.After(s.began) }); i > 0 {
		s.last = own[i].Manifest.Created
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

// due returns the time until the next snapshot; without a schedule a very long one. It counts from the
// newest snapshot, so that a restart makes none. If that is dated in the future, because the clock is
// wrong or was, it counts from the start of this process.
func (s *Snapshots) due(cfg config.Snapshots) time.Duration {
	every := cfg.Interval.Duration
	if every == 0 {
		return config.MaxSnapshotAge
	}
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last.IsZero() {
		return 0
	}
	now := s.clock.Now()
	age := clocks.AgeOf(clocks.Stamp{At: last}, clocks.Stamp{At: now})
	if !age.Known() {
		age = clocks.AgeOf(clocks.Stamp{At: s.began}, clocks.Stamp{At: now})
	}
	return max(0, every-age.Duration())
}

// Create makes a snapshot and removes old ones.
func (s *Snapshots) Create(ctx context.Context, progress snapshot.Progress) (*snapshot.Snapshot, error) {
	start := s.clock.Now()
	x, err := s.dir.Create(ctx, s.db, start, progress)
	s.mu.Lock()
	if err == nil {
		s.note(x)
		s.last = start
		s.state.Made++
		s.state.Problem = ""
	} else if ctx.Err() == nil {
		s.state.Failed++
		s.state.Problem = err.Error()
	}
	s.mu.Unlock()
	if err != nil {
		s.log.Warn(localapi.SnapshotFailed, "error", err)
		return nil, err
	}
	s.log.Info("snapshot made", "name", x.Name, "bytes", x.Bytes, "objects", x.Manifest.Objects(), "took", s.clock.Since(start).Round(time.Millisecond))
	cfg, _ := s.config()
	removed, err := s.dir.Prune(ctx, cfg.Keep, cfg.MaxAge.Duration, cfg.Interval.Duration, s.clock.Now())
	for _, r := range removed {
		s.log.Info("snapshot removed", "name", r.Name)
	}
	if err != nil && !errors.Is(err, snapshot.ErrBusy) {
		s.log.Warn("old snapshots could not be removed", "error", err) // the new one is good
	}
	return x, nil
}
