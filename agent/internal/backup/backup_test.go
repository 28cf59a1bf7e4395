package backup

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/config"
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

// TestSchedule_FutureSnapshot checks that a snapshot with a date in the future does not end the
// schedule.
func TestSchedule_FutureSnapshot(t *testing.T) {
	_, dir := paths(t)
	cfg := config.Snapshots{Interval: metav1.Duration{Duration: time.Hour}}
	s := New(nil, dir, always(cfg), clock.RealClock{}, slog.New(slog.DiscardHandler))
	s.note(&snapshot.Snapshot{Manifest: &snapshot.Manifest{Created: time.Now().Add(1000 * time.Hour)}})
	require.Equal(t, time.Hour, s.due(cfg))
}
