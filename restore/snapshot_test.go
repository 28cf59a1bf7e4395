package restore_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// made writes a database at path with a checkpoint at rv, and a snapshot of it.
func made(t *testing.T, path string, rv int) *snapshot.Snapshot {
	db := openDB(t, path, bolt.Options{})
	defer db.Close()
	c, err := db.Open(storetest.Info("pods"))
	require.NoError(t, err)
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply([]store.Change{storetest.Put(storetest.Object("shop", "till", "u", "1", nil, "x"))}))
	require.NoError(t, r.Commit(storetest.Checkpoint(rv)))
	s, err := snapshots(path).Create(t.Context(), db, now.Add(time.Duration(rv)*time.Second), nil)
	require.NoError(t, err)
	return s
}

func snapshots(path string) snapshot.Dir {
	return snapshot.Dir{Path: filepath.Join(filepath.Dir(path), "snapshots")}
}

func requireRV(t *testing.T, db *bolt.DB, rv string) {
	t.Helper()
	v, err := db.View("pods")
	require.NoError(t, err)
	defer v.Close()
	require.Equal(t, rv, v.State().RV)
	_, err = v.Get("shop/till")
	require.NoError(t, err)
}

// A database that can't be used is replaced by the newest snapshot that can.
func TestOpenFromSnapshot(t *testing.T) {
	for _, tc := range []struct {
		name    string
		spoil   []int // of the three snapshots, 0 the oldest
		rv      string
		verdict string
	}{
		{"newest", nil, "3", "; from snapshot 20260304T050610.000Z.snap, of 2026-03-04T05:06:10Z"},
		{"second", []int{2}, "2", "; from snapshot 20260304T050609.000Z.snap, of 2026-03-04T05:06:09Z"},
		{"oldest", []int{1, 2}, "1", "; from snapshot 20260304T050608.000Z.snap, of 2026-03-04T05:06:08Z"},
		{"none is usable", []int{0, 1, 2}, "", ".foreign-20260304T050607Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			var made3 []*snapshot.Snapshot
			for rv := 1; rv <= 3; rv++ {
				made3 = append(made3, made(t, path, rv))
			}
			for _, i := range tc.spoil {
				require.NoError(t, os.Truncate(made3[i].Path, made3[i].Bytes-1))
			}
			write(t, path, []byte("garbage"))
			db, verdict := open(t, path, bolt.Options{}, restore.Sources{Snapshots: snapshots(path)})
			defer db.Close()
			require.Equal(t, restore.Quarantined, verdict.Outcome)
			require.Len(t, verdict.Skipped, len(tc.spoil))
			require.Contains(t, verdict.String(), "quarantined: foreign")
			require.Regexp(t, tc.verdict+"$", verdict.String())
			aside := read(t, verdict.MovedTo)
			require.Equal(t, "garbage", string(aside))
			require.NoFileExists(t, path+".restore")
			origin, err := db.Origin()
			require.NoError(t, err)
			if tc.rv == "" {
				require.Nil(t, verdict.From)
				require.Empty(t, origin)
				return
			}
			requireRV(t, db, tc.rv)
			require.Equal(t, verdict.From.String(), origin)
		})
	}
}

// Snapshots that were not made here do not replace the database.
func TestOpenIgnoresForeignSnapshots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	s := made(t, path, 1)
	require.NoError(t, os.Rename(s.Path, filepath.Join(filepath.Dir(s.Path), "seed.snap")))
	write(t, path, []byte("garbage"))
	db, verdict := open(t, path, bolt.Options{}, restore.Sources{Snapshots: snapshots(path)})
	require.NoError(t, db.Close())
	require.Nil(t, verdict.From)
}

func TestSeed(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "cache.db")
	seed := made(t, elsewhere, 7).Path
	path := filepath.Join(t.TempDir(), "state", "cache.db")
	sources := restore.Sources{Seed: seed}
	db, verdict := open(t, path, bolt.Options{}, sources)
	require.Equal(t, restore.Created, verdict.Outcome)
	require.Equal(t, "created; from snapshot 20260304T050614.000Z.snap, of 2026-03-04T05:06:14Z", verdict.String())
	requireRV(t, db, "7")
	c, err := db.Open(storetest.Info("pods"))
	require.NoError(t, err)
	cp := storetest.Checkpoint(9)
	require.NoError(t, c.Apply(store.Batch{Checkpoint: cp}))
	require.NoError(t, db.Close())

	// At the second start, the node has a database.
	db, verdict = open(t, path, bolt.Options{}, sources)
	require.Equal(t, "opened", verdict.String())
	requireRV(t, db, "9")
	require.NoError(t, db.Close())

	// A bad seed does not stop the agent.
	for _, seed := range []string{filepath.Join(t.TempDir(), "none"), elsewhere} {
		path := filepath.Join(t.TempDir(), "cache.db")
		db, verdict := open(t, path, bolt.Options{}, restore.Sources{Seed: seed})
		require.NoError(t, db.Close())
		require.Equal(t, "created", verdict.String())
		require.Len(t, verdict.Skipped, 1)
	}
}

func TestFromSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	old := made(t, path, 1)
	made(t, path, 2)
	before := read(t, path)

	db := openDB(t, path, bolt.Options{})
	_, err := restore.FromSnapshot(t.Context(), old.Path, path, bolt.Options{}, now, nil)
	require.ErrorIs(t, err, store.ErrLocked)
	require.NoError(t, db.Close())

	bad := filepath.Join(t.TempDir(), "bad.snap")
	whole := read(t, old.Path)
	whole[len(whole)/2] ^= 1
	write(t, bad, whole)
	_, err = restore.FromSnapshot(t.Context(), bad, path, bolt.Options{}, now, nil)
	require.ErrorAs(t, err, new(*store.CorruptionError))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = restore.FromSnapshot(ctx, old.Path, path, bolt.Options{}, now, nil)
	require.ErrorIs(t, err, context.Canceled)
	after := read(t, path)
	require.Equal(t, before, after, "no file has changed")

	verdict, err := restore.FromSnapshot(t.Context(), old.Path, path, bolt.Options{}, now, nil)
	require.NoError(t, err)
	require.Equal(t, path+".replaced-20260304T050607Z", verdict.MovedTo)
	require.Equal(t, "replaced; the old file is "+verdict.MovedTo+"; from snapshot 20260304T050608.000Z.snap, of 2026-03-04T05:06:08Z", verdict.String())
	aside := read(t, verdict.MovedTo)
	require.Equal(t, before, aside)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	db = openDB(t, path, bolt.Options{})
	defer db.Close()
	requireRV(t, db, "1")
	left, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	require.Len(t, left, 2)
}

// A seed whose database is over the quota writes nothing, and the agent starts empty.
func TestSeed_OverQuota_StartsEmpty(t *testing.T) {
	seed := made(t, filepath.Join(t.TempDir(), "cache.db"), 7)
	path := filepath.Join(t.TempDir(), "cache.db")
	opts := bolt.Options{MaxBytes: seed.Manifest.Database.Bytes - 1}
	db, verdict := open(t, path, opts, restore.Sources{Seed: seed.Path})
	defer db.Close()
	require.Equal(t, "created", verdict.String())
	require.Len(t, verdict.Skipped, 1)
	require.ErrorIs(t, verdict.Skipped[0], snapshot.ErrQuota)
	require.ErrorContains(t, verdict.Skipped[0], seed.Path)
	_, err := restore.FromSnapshot(t.Context(), seed.Path, path+"2", opts, now, nil)
	require.ErrorContains(t, restore.WithHint(err), "raise store.maxSize")
	require.Equal(t, restore.WithHint(err), restore.WithHint(restore.WithHint(err)), "one next step is enough")
	require.NoFileExists(t, path+"2")
}
