package backup

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/clocks/clockstest"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// paths returns those of a database and of its snapshots.
func paths(t *testing.T) (db string, dir snapshot.Dir) {
	t.Helper()
	base := t.TempDir()
	return filepath.Join(base, "cache.db"), snapshot.Dir{Path: filepath.Join(base, "snapshots"), Writer: "test"}
}

// always returns a configuration that does not change.
func always(cfg config.Snapshots) func() (config.Snapshots, <-chan struct{}) {
	return func() (config.Snapshots, <-chan struct{}) { return cfg, nil }
}

// TestSchedule makes one snapshot an interval, counted from the newest one, and waits until there is
// something to copy.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, dir := paths(t)
		cfg := config.Snapshots{Interval: metav1.Duration{Duration: 24 * time.Hour}, Keep: 3, MaxAge: metav1.Duration{Duration: config.DefaultSnapshotAge}}
		db, err := bolt.Open(path, bolt.Options{})
		require.NoError(t, err)
		defer db.Close()
		s := New(db, dir, always(cfg), clock.RealClock{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		run := func(s *Snapshots) {
			defer close(done)
			s.Run(ctx)
		}
		go run(s)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, s.Status().Made, "nothing was synced")

		coll, err := db.Open(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod"})
		require.NoError(t, err)
		r, err := coll.Replace()
		require.NoError(t, err)
		require.NoError(t, r.Commit(store.Checkpoint{RV: "7"}))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, 1, s.Status().Made)
		time.Sleep(21 * time.Hour)
		_, err = s.Create(ctx, nil) // by hand: the schedule counts from here
		require.NoError(t, err)
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, 2, s.Status().Made)
		time.Sleep(4 * 24 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, 6, s.Status().Made)
		own, err := s.dir.Own()
		require.NoError(t, err)
		require.Len(t, own, 3)
		require.Equal(t, own[0].Name, s.Status().Name)
		cancel()
		<-done

		// After a restart the interval goes on.
		ctx, cancel = context.WithCancel(t.Context())
		done = make(chan struct{})
		s = New(db, dir, always(cfg), clock.RealClock{}, slog.New(slog.DiscardHandler))
		require.Equal(t, own[0].Name, s.Status().Name)
		go run(s)
		synctest.Wait()
		require.Zero(t, s.Status().Made)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, 1, s.Status().Made)

		// A failure is reported, and tried again.
		require.NoError(t, os.RemoveAll(s.dir.Path))
		require.NoError(t, os.WriteFile(s.dir.Path, nil, 0o600))
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Positive(t, s.Status().Failed)
		require.NotEmpty(t, s.Status().Problem)
		require.NoError(t, os.Remove(s.dir.Path))
		time.Sleep(retryAfter)
		synctest.Wait()
		require.EqualValues(t, 2, s.Status().Made)
		require.Empty(t, s.Status().Problem)
		cancel()
		<-done
	})
}

// TestSchedule_WrongClock: snapshots are made at their interval with a clock that is behind or ahead, and once it is
// right again, also if the newest one has a date in the future.
func TestSchedule_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	cfg := config.Snapshots{Interval: metav1.Duration{Duration: time.Hour}}
	for _, off := range []time.Duration{-26 * year, -2 * time.Hour, 2 * time.Hour, 14 * year} {
		path, dir := paths(t)
		db, err := bolt.Open(path, bolt.Options{})
		require.NoError(t, err)
		clk := testclock.NewFakeClock(time.Now())
		newSnapshots := func() *Snapshots { return New(db, dir, always(cfg), clk, slog.New(slog.DiscardHandler)) }
		create := func(s *Snapshots) {
			_, err := s.Create(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, time.Hour, s.due(cfg))
		}
		create(newSnapshots())
		clk.Step(time.Minute)
		right := clk.Now()
		clk.SetTime(right.Add(off))
		s := newSnapshots()
		require.Equal(t, off < 0, s.due(cfg) > 0, "clock moved by %s", off)
		clk.Step(time.Hour)
		require.Zero(t, s.due(cfg))
		create(s)

		clk.SetTime(right.Add(2 * time.Hour))
		s = newSnapshots()
		require.Zero(t, s.due(cfg), "it counts from the newest one that has no date in the future")
		create(s)
		clk.Step(time.Minute)
		require.Equal(t, 59*time.Minute, newSnapshots().due(cfg), "a restart makes none")
		require.NoError(t, db.Close())
	}
}

// TestSchedule_WrongClock_NeverLate: no wrong clock keeps snapshots from being made for longer than the interval,
// while the agent runs or over restarts. So a schedule can only be late after a failure, which is reported, or
// if nothing is synced.
func TestSchedule_WrongClock_NeverLate(t *testing.T) {
	const (
		day, year = 24 * time.Hour, 365 * 24 * time.Hour
		boots     = 12 * time.Hour
	)
	still := func(off time.Duration) func(int) time.Duration { return func(int) time.Duration { return off } }
	for name, tc := range map[string]struct {
		off      func(hour int) time.Duration // of the clock
		restarts time.Duration                // 0 for none
	}{
		"right":                          {off: still(0)},
		"two hours behind":               {off: still(-2 * time.Hour)},
		"26 years behind":                {off: still(-26 * year)},
		"two hours ahead":                {off: still(2 * time.Hour)},
		"14 years ahead":                 {off: still(14 * year)},
		"set back each time it gets due": {off: func(hour int) time.Duration { return -time.Duration(hour) * 55 * time.Minute }},
		"jumps back and forth":           {off: func(hour int) time.Duration { return time.Duration(hour%2*2-1) * 20 * year }},
		"behind, then right":             {off: func(hour int) time.Duration { return min(0, time.Duration(hour-30)*year) }},
		"ahead, then right":              {off: func(hour int) time.Duration { return max(0, time.Duration(30-hour)*year) }},
		"right, and restarted":           {off: still(0), restarts: boots},
		"each boot in 1970":              {off: func(hour int) time.Duration { return -26*year - time.Duration(hour/12)*boots }, restarts: boots},
		"each boot on the same day":      {off: func(hour int) time.Duration { return -time.Duration(hour/12) * boots }, restarts: boots},
		"each boot a day earlier":        {off: func(hour int) time.Duration { return -time.Duration(hour/12) * day }, restarts: boots},
		"each boot in another year":      {off: func(hour int) time.Duration { return time.Duration(hour/12*7%5-2) * year }, restarts: boots},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clk := &clockstest.Moved{}
				path, dir := paths(t)
				cfg := config.Snapshots{Interval: metav1.Duration{Duration: day}, Keep: 30}
				db, err := bolt.Open(path, bolt.Options{})
				require.NoError(t, err)
				defer db.Close()
				coll, err := db.Open(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod"})
				require.NoError(t, err)
				r, err := coll.Replace()
				require.NoError(t, err)
				require.NoError(t, r.Commit(store.Checkpoint{RV: "7"}))
				start := func() (s *Snapshots, stop func()) {
					s = New(db, dir, always(cfg), clk, slog.New(slog.DiscardHandler))
					ctx, cancel := context.WithCancel(t.Context())
					var task sync.WaitGroup
					task.Go(func() { s.Run(ctx) })
					return s, sync.OnceFunc(func() { cancel(); task.Wait() })
				}
				s, stop := start() // with a right clock
				defer func() { stop() }()
				synctest.Wait()
				require.EqualValues(t, 1, s.Status().Made)
				newest, hours := s.Status().Name, 0
				for hour := range 5 * 24 {
					if restart := tc.restarts > 0 && hour%12 == 0; hour == 0 || restart {
						stop()
						clk.Set(tc.off(hour))
						s, stop = start()
					}
					clk.Set(tc.off(hour))
					time.Sleep(time.Hour)
					synctest.Wait()
					if hours++; s.Status().Name != newest {
						newest, hours = s.Status().Name, 0
					}
					require.LessOrEqual(t, hours, 24, "no snapshot is made")
					require.Zero(t, s.Status().Failed)
				}
			})
		})
	}
}

// TestSlowSnapshot: a snapshot that hangs is a failure each hour, with one line in the log, until it is made.
func TestSlowSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, dir := paths(t)
		db, err := bolt.Open(path, bolt.Options{})
		require.NoError(t, err)
		defer db.Close()
		var log strings.Builder
		s := New(db, dir, always(config.Snapshots{}), clock.RealClock{}, slog.New(slog.NewTextHandler(&log, nil)))
		hangs, once := make(chan struct{}), sync.Once{}
		goesOn := sync.OnceFunc(func() { close(hangs) })
		var task sync.WaitGroup
		defer task.Wait()
		defer goesOn()
		var made error
		task.Go(func() {
			_, made = s.Create(t.Context(), func(snapshot.Step, int64, int64) { once.Do(func() { <-hangs }) })
		})
		time.Sleep(slowAfter - 1)
		synctest.Wait()
		require.Empty(t, s.Status().Problem)
		time.Sleep(26 * time.Hour)
		synctest.Wait()
		require.Equal(t, errSlow.Error(), s.Status().Problem)
		require.EqualValues(t, 26, s.Status().Failed, "an alert rule sees failures on each day")
		require.Equal(t, 1, strings.Count(log.String(), localapi.SnapshotFailed))
		goesOn()
		task.Wait()
		require.NoError(t, made)
		require.Empty(t, s.Status().Problem)
		require.EqualValues(t, 1, s.Status().Made)
	})
}
