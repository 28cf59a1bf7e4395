package agent

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// A schedule makes one snapshot an interval, from the newest that there is on, and
// waits until there is something to copy.
func TestSnapshotSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "snapshots: {interval: 24h, keep: 3}\n"+podsOnly)
		db, err := bolt.Open(n.cfg.Store.Path, bolt.Options{})
		require.NoError(t, err)
		defer db.Close()
		s := newSnapshots(&Agent{cfg: n.cfg, log: slog.New(slog.DiscardHandler)}, db)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		run := func(s *snapshots) {
			defer close(done)
			s.run(ctx)
		}
		go run(s)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, s.status().Made, "nothing was synced")

		coll, err := db.Open(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod"})
		require.NoError(t, err)
		r, err := coll.Replace()
		require.NoError(t, err)
		require.NoError(t, r.Commit(store.Checkpoint{RV: "7"}))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, 1, s.status().Made)
		time.Sleep(21 * time.Hour)
		_, err = s.create(ctx, nil) // by hand: the schedule counts from here
		require.NoError(t, err)
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, 2, s.status().Made)
		time.Sleep(4 * 24 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, 6, s.status().Made)
		own, err := s.dir.Own()
		require.NoError(t, err)
		require.Len(t, own, 3)
		require.Equal(t, own[0].Name, s.status().Name)
		cancel()
		<-done

		// After a restart the interval goes on.
		ctx, cancel = context.WithCancel(t.Context())
		done = make(chan struct{})
		s = newSnapshots(&Agent{cfg: n.cfg, log: slog.New(slog.DiscardHandler)}, db)
		require.Equal(t, own[0].Name, s.status().Name)
		go run(s)
		synctest.Wait()
		require.Zero(t, s.status().Made)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, 1, s.status().Made)

		// What fails is told, and tried again.
		require.NoError(t, os.RemoveAll(s.dir.Path))
		require.NoError(t, os.WriteFile(s.dir.Path, nil, 0o600))
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Positive(t, s.status().Failed)
		require.NotEmpty(t, s.status().Problem)
		require.NoError(t, os.Remove(s.dir.Path))
		time.Sleep(snapshotRetry)
		synctest.Wait()
		require.EqualValues(t, 2, s.status().Made)
		require.Empty(t, s.status().Problem)
		cancel()
		<-done
	})
}

// One that says it was made in the future must not end the schedule.
func TestSnapshotFromTheFuture(t *testing.T) {
	n := newNode(t, podsOnly)
	s := newSnapshots(&Agent{cfg: n.cfg, log: slog.New(slog.DiscardHandler)}, nil)
	s.cfg.Interval = metav1.Duration{Duration: time.Hour}
	s.note(&snapshot.Snapshot{Manifest: &snapshot.Manifest{Created: time.Now().Add(1000 * time.Hour)}})
	require.Equal(t, time.Hour, s.due())
}

// The agent makes a snapshot when it is asked, tells of it, and begins with it when
// the database is gone bad.
func TestSnapshotTakesThePlace(t *testing.T) {
	n := newNode(t, podsOnly)
	n.seed(t)
	client, stop := n.run(t, io.Discard)
	made, err := client.CreateSnapshot(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(n.dir, "state", "snapshots"), filepath.Dir(made.Path))
	require.EqualValues(t, 2, made.Objects)
	status, err := client.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, made.Name, status.Snapshots.Name)
	require.Equal(t, made.Bytes, status.Snapshots.Bytes)
	require.NoError(t, stop())

	require.NoError(t, os.WriteFile(n.cfg.Store.Path, []byte("not a database"), 0o600))
	var log bytes.Buffer
	client, stop = n.run(t, &log)
	status, err = client.Status(t.Context())
	require.NoError(t, err)
	require.Contains(t, status.Store.Verdict, "from snapshot "+made.Name)
	require.Equal(t, "resume at RV 7", collectionOf(status, "pods").Verdict)
	require.Equal(t, made.Name, status.Snapshots.Name)
	count := 0
	require.NoError(t, client.Objects(t.Context(), "pods", localapi.ObjectQuery{}, func(*object.Object) error { count++; return nil }))
	require.Equal(t, 2, count)
	require.NoError(t, stop())
	require.Contains(t, log.String(), "a snapshot took its place")

	db, err := bolt.Open(n.cfg.Store.Path, bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	origin, err := db.Origin()
	require.NoError(t, err)
	require.Contains(t, origin, made.Name)
}

// An agent on a database from a snapshot wants the very same cluster.
func TestElsewhere(t *testing.T) {
	n := newNode(t, podsOnly)
	n.seed(t)
	for _, elsewhere := range []bool{false, true} {
		db, err := bolt.Open(n.cfg.Store.Path, bolt.Options{})
		require.NoError(t, err)
		if elsewhere {
			require.NoError(t, db.SetOrigin("a snapshot"))
		}
		a := &Agent{cfg: n.cfg, log: slog.New(slog.DiscardHandler)}
		require.NoError(t, a.opened(db, restore.File{Outcome: restore.Opened}))
		require.NoError(t, a.openCollections())
		require.Equal(t, elsewhere, a.collectionOptions(false).ForeignCheckpoint)
		require.NoError(t, db.Close())
	}
}

func collectionOf(s *localapi.Status, id string) localapi.Collection {
	for _, c := range s.Collections {
		if c.ID == id {
			return c
		}
	}
	return localapi.Collection{}
}
