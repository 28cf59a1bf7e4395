package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/agent/internal/sleep"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/localapi/statuspage"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store/bolt"
)

// snapshotRetry is how long a schedule waits after a snapshot that failed, or where
// there is nothing to copy yet.
const snapshotRetry = 10 * time.Minute

// snapshots makes copies of the database, on schedule and when somebody asks. The nil
// one is that of a store that has none.
type snapshots struct {
	dir   snapshot.Dir
	db    *bolt.DB
	clock clock.WithTicker
	log   *slog.Logger

	wake chan struct{} // has one when cfg was changed

	mu   sync.Mutex // guards what follows
	cfg  config.Snapshots
	seen localapi.SnapshotStatus
}

func (a *Agent) snapshotDir() snapshot.Dir {
	return snapshot.Dir{Path: a.config().Snapshots.Dir, Writer: "snapcache " + a.opts.Version}
}

func newSnapshots(a *Agent, db *bolt.DB) *snapshots {
	s := &snapshots{dir: a.snapshotDir(), cfg: a.config().Snapshots, db: db, clock: a.clock, log: a.log, wake: make(chan struct{}, 1)}
	s.seen.Dir = s.dir.Path
	own, err := s.dir.Own()
	if err != nil {
		s.seen.Problem = err.Error()
	}
	for _, x := range own {
		if x.Err == nil {
			s.note(&x)
			break
		}
	}
	return s
}

// note takes a snapshot for the newest.
func (s *snapshots) note(x *snapshot.Snapshot) {
	s.seen.Name, s.seen.Bytes, s.seen.Newest = x.Name, x.Bytes, x.Manifest.Created
}

// status returns what is known; nil where there are no snapshots.
func (s *snapshots) status() *localapi.SnapshotStatus {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	return &seen
}

// run makes snapshots on schedule until ctx ends.
func (s *snapshots) run(ctx context.Context) {
	if s == nil {
		return
	}
	wait := s.due()
	for {
		if sleep.UnlessWoken(ctx, s.clock, wait, s.wake) != nil {
			return
		}
		if wait = s.due(); wait > 0 {
			continue // somebody asked for one meanwhile, or it is configured in another way
		}
		wait = snapshotRetry
		if !collection.AnySynced(s.db) {
			continue
		}
		if _, err := s.create(ctx, nil); err == nil {
			wait = s.due()
		}
	}
}

// configure has the schedule and the rotation be others.
func (s *snapshots) configure(cfg config.Snapshots) {
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

func (s *snapshots) config() config.Snapshots {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// due is how long it is to the next snapshot; without a schedule as good as for ever. It
// counts from the newest there is, so that a restart makes none; one that says it was made in the future counts as of now.
func (s *snapshots) due() time.Duration {
	every := s.config().Interval.Duration
	if every == 0 {
		return config.MaxSnapshotAge
	}
	newest := s.status().Newest
	if newest.IsZero() {
		return 0
	}
	age := max(0, s.clock.Since(newest))
	return max(0, every-age)
}

// create makes a snapshot and removes old ones.
func (s *snapshots) create(ctx context.Context, progress snapshot.Progress) (*snapshot.Snapshot, error) {
	start := s.clock.Now()
	x, err := s.dir.Create(ctx, s.db, start, progress)
	s.mu.Lock()
	if err == nil {
		s.note(x)
		s.seen.Made++
		s.seen.Problem = ""
	} else if ctx.Err() == nil {
		s.seen.Failed++
		s.seen.Problem = err.Error()
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

// handler serves the socket: what is cached, comparing it with the server, the making of
// snapshots, reloads, health, metrics and profiles.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", localapi.Handler(a.source))
	page := a.statusPage(false)
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /events", page)
	mux.Handle(localapi.VerifyPattern, localapi.VerifyHandler(a.verify))
	mux.Handle("GET /metrics", a.metrics())
	a.healthHandlers(mux)
	profileHandlers(mux)
	mux.Handle(localapi.ReloadPattern, localapi.ReloadHandler(a.reload))
	if a.snapshots != nil {
		mux.Handle(localapi.SnapshotPattern, localapi.SnapshotHandler(func(ctx context.Context, progress func(string, int64, int64)) (*localapi.Snapshot, error) {
			x, err := a.snapshots.create(ctx, func(step snapshot.Step, done, total int64) { progress(string(step), done, total) })
			if err != nil {
				return nil, err
			}
			return &localapi.Snapshot{Name: x.Name, Path: x.Path, Bytes: x.Bytes, Objects: x.Manifest.Objects(), Created: x.Manifest.Created}, nil
		}))
	}
	// A tunnel from somebody's desk may end at the socket, with a browser at its other end.
	return statuspage.LocalHost(http.NewCrossOriginProtection().Handler(mux))
}
