package agent

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/agent/internal/database"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store/bolt"
)

// TestStartFromSnapshot checks that the agent makes a snapshot on request, reports it in the
// status, and starts from it if the database can't be used.
func TestStartFromSnapshot(t *testing.T) {
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
	require.NoError(t, client.Objects(t.Context(), []string{"pods"}, localapi.ObjectQuery{}, func(json []byte) error { count++; return nil }))
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

// TestForeignCheckpoint checks that the checkpoints of a database from a snapshot count as another node's.
func TestForeignCheckpoint(t *testing.T) {
	n := newNode(t, podsOnly)
	n.seed(t)
	for _, elsewhere := range []bool{false, true} {
		db, err := bolt.Open(n.cfg.Store.Path, bolt.Options{})
		require.NoError(t, err)
		if elsewhere {
			require.NoError(t, db.SetOrigin("a snapshot"))
		}
		a := &Agent{settings: newSettings(n.cfg, time.Now()), log: slog.New(slog.DiscardHandler)}
		require.NoError(t, db.Close())
		opener := database.Opener{Clock: a.clock, Log: a.log, Options: func() bolt.Options { return bolt.Options{} }, Checking: a.checking}
		require.NoError(t, opener.Open(t.Context(), n.cfg.Store.Path, restore.Sources{}, a.use))
		require.Equal(t, elsewhere, a.collectionOptions(false).ForeignCheckpoint)
		require.NoError(t, a.db.Close())
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
