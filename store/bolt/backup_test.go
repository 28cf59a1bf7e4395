package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// hotCopyTo copies a database to a file with a name.
func hotCopyTo(t storetest.T, db *bolt.DB, path string) *bolt.Backup {
	c, err := db.Backup(context.Background(), filepath.Dir(path), nil)
	require.NoError(t, err)
	defer c.File.Close()
	f, err := os.Create(path)
	require.NoError(t, err)
	n, err := io.Copy(f, io.NewSectionReader(c.File, 0, c.Bytes))
	require.NoError(t, err)
	require.Equal(t, c.Bytes, n)
	require.NoError(t, f.Close())
	return c
}

// copied is a harness that reopens a copy of the database instead of the database.
type copied struct {
	harness
	n int
}

func (h *copied) Reopen(t storetest.T) {
	h.n++
	path := filepath.Join(filepath.Dir(h.path), fmt.Sprintf("copy-%d.db", h.n))
	hotCopyTo(t, h.db, path)
	require.NoError(t, h.db.Close())
	h.path = path
	h.open(t)
}

// TestCopySuite runs the shared suite, its property test included, on a store that is replaced by a
// copy of itself at each reopen.
func TestCopySuite(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite takes long, and TestCopyBesideWriter has the gist")
	}
	for _, tc := range []struct {
		name   string
		budget int
	}{{"memory", 0}, {"generations", 1}} {
		t.Run(tc.name, func(t *testing.T) {
			storetest.Run(t, func(t storetest.T) storetest.Harness {
				dir, err := os.MkdirTemp("", "bolt")
				require.NoError(t, err)
				h := &copied{harness: harness{path: filepath.Join(dir, "cache.db"), opts: bolt.Options{
					ReplaceBudget: tc.budget, ViewLimit: time.Hour, HistoryRetention: storetest.HistoryRetention,
				}}}
				h.open(t)
				t.Cleanup(func() {
					_ = h.db.Close() // some tests have closed it
					checkFile(t, h.path)
					_ = os.RemoveAll(dir)
				})
				return h
			})
		})
	}
}

// TestCopyBesideWriter makes copies while a writer, flushes and folds go on. Each copy must be one
// of the states that existed.
func TestCopyBesideWriter(t *testing.T) {
	copies := 40
	if testing.Short() {
		copies = 10
	}
	db, path := newDB(t, bolt.Options{FlushInterval: time.Millisecond, ReplaceBudget: 1000})
	coll := openCollection(t, db, storetest.Info("pods"), lifeIndexes()...)
	models := []*storetest.Model{storetest.NewModel(storetest.Info("pods"), lifeIndexes()...)}
	const synced = 1

	put := func(rv int) []store.Change {
		changes := []store.Change{storetest.Put(sampleObject(rv%50, rv))}
		if rv%3 == 0 {
			changes = append(changes, store.Change{Key: sampleObject((rv+7)%50, 0).Key(), RV: fmt.Sprint(rv + 1)})
		}
		return changes
	}
	write := func(n int) error {
		rv, next := 2*n, models[len(models)-1].Clone()
		cp := storetest.Checkpoint(rv + 1)
		cp.Cluster, cp.ListReason = "one", store.ReasonExpired
		switch {
		case n%20 == synced:
			r, err := coll.Replace()
			if err != nil {
				return err
			}
			var changes []store.Change
			for i := range 50 {
				changes = append(changes, storetest.Put(sampleObject(i, rv)))
			}
			if err := errors.Join(r.Apply(changes), r.Commit(cp)); err != nil {
				return err
			}
			next.Replace(storetest.Info("pods"), changes, cp)
		default:
			b := store.Batch{Changes: put(rv), Checkpoint: cp}
			if err := coll.Apply(b); err != nil {
				return err
			}
			next.Apply(b)
		}
		models = append(models, next)
		if n%7 == 0 {
			return db.Fold()
		}
		return nil
	}
	for n := range 3 { // until it is synced
		require.NoError(t, write(n))
	}

	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 3; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := write(n); err != nil {
				done <- err
				return
			}
		}
	}()
	for i := range copies {
		hotCopyTo(t, db, filepath.Join(filepath.Dir(path), fmt.Sprintf("copy-%d.db", i)))
	}
	close(stop)
	require.NoError(t, <-done)

	byRV := map[string]*storetest.Model{}
	for _, m := range models {
		byRV[m.Checkpoint.RV] = m
	}
	for i := range copies {
		file := filepath.Join(filepath.Dir(path), fmt.Sprintf("copy-%d.db", i))
		report := checkReport(t, file, bolt.Keyring{})
		require.Empty(t, report.Problems)
		c := openDB(t, file, bolt.Options{ReadOnly: true})
		v := view(t, c, "pods")
		model := byRV[v.State().RV]
		require.NotNil(t, model, "there was no state at %s", v.State().RV)
		model.Equal(t, v)
		v.Close()
		require.NoError(t, c.Close())
	}
}

// A copy has no free pages and no unfinished generations.
func TestCopyIsSmall(t *testing.T) {
	db, path := newDB(t, bolt.Options{ReplaceBudget: 1})
	coll := openCollection(t, db, storetest.Info("pods"))
	fill := func(r store.Replacement, from, to int) {
		var changes []store.Change
		for i := from; i < to; i++ {
			changes = append(changes, storetest.Put(storetest.Object("shop", fmt.Sprint("o-", i), "u", fmt.Sprint(i+1), nil, fmt.Sprintf("secret-%d", i))))
		}
		require.NoError(t, r.Apply(changes))
	}
	r, err := coll.Replace()
	require.NoError(t, err)
	fill(r, 0, 20_000)
	require.NoError(t, r.Commit(storetest.Checkpoint(20_000)))
	var gone []store.Change
	for i := 100; i < 20_000; i++ {
		gone = append(gone, storetest.Delete(fmt.Sprint("shop/o-", i)))
	}
	cp := storetest.Checkpoint(20_001)
	cp.Cluster = "another" // so that the history starts again
	r, err = coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(gone))
	require.NoError(t, r.Commit(cp))
	r, err = coll.Replace()
	require.NoError(t, err)
	fill(r, 20_000, 30_000)

	c, err := db.Backup(t.Context(), filepath.Dir(path), func(done, total int64) { require.LessOrEqual(t, done, total) })
	require.NoError(t, err)
	defer c.File.Close()
	before, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, c.Bytes, before.Size()/4)
	require.EqualValues(t, 100, c.Collections[0].State.Count)
	require.NoError(t, r.Abort())
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".copy-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// If a copy can't be complete, Backup returns an error and no copy.
func TestCopyRefuses(t *testing.T) {
	for _, tc := range []struct {
		name        string
		bucket, key string
		want        string
	}{
		{"record", "c/pods/g1/objects", "site/o-05", "site/o-05 is corrupt: checksum"},
		{"checkpoint", "c/pods", "state", "state: checksum"},
		{"unread", "c/pods", "dict", "dict: checksum"},
		{"indexes", "c/pods/g1", "indexes", "indexes: checksum"},
		{"history", "c/pods/g1", "history", "history: checksum"},
		{"feed", "c/pods/g1/feed", "", "change feed"},
		{"tombstone", "c/pods/g1/tombs", "", "checksum"},
		{"journal", "journal", "", "journal"},
		{"dictionary", "dict", "", "dictionary"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := sampleFile(t)
			edit(t, path, func(tx *bbolt.Tx) error {
				b := bucketAt(tx, tc.bucket)
				if tc.bucket == "journal" {
					newest, _ := b.Cursor().Last()
					b = b.Bucket(newest)
				}
				key := []byte(tc.key)
				if tc.key == "" {
					key, _ = b.Cursor().Last()
				}
				changed := append([]byte(nil), b.Get(key)...)
				changed[len(changed)-1] ^= 1
				return b.Put(append([]byte(nil), key...), changed)
			})
			db := openDB(t, path, bolt.Options{ReadOnly: true})
			defer db.Close()
			_, err := db.Backup(t.Context(), filepath.Dir(path), nil)
			require.ErrorAs(t, err, new(*store.CorruptionError))
			require.ErrorContains(t, err, tc.want)
			entries, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			require.Len(t, entries, 2, "nothing is left behind")
		})
	}

	db, path := newDB(t, bolt.Options{})
	_, err := db.Backup(t.Context(), "/proc", nil) // which has no space at all
	bytes, dir := needed(t, err)
	require.Greater(t, bytes, int64(1<<20))
	require.Equal(t, "/proc", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	coll := openCollection(t, db, storetest.Info("pods"))
	r, err := coll.Replace()
	require.NoError(t, err)
	for i := range 5000 {
		require.NoError(t, r.Apply([]store.Change{storetest.Put(storetest.Object("", fmt.Sprint(i), "u", "1", nil, fmt.Sprintf("%0400d", i*i*i)))}))
	}
	require.NoError(t, r.Commit(storetest.Checkpoint(1)))
	_, err = db.Backup(ctx, filepath.Dir(path), nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, db.Close())
	_, err = db.Backup(t.Context(), filepath.Dir(path), nil)
	require.ErrorIs(t, err, store.ErrClosed)
}

func TestOrigin(t *testing.T) {
	db, path := newDB(t, bolt.Options{})
	origin, err := db.Origin()
	require.NoError(t, err)
	require.Empty(t, origin)
	require.NoError(t, db.SetOrigin("elsewhere"))
	require.NoError(t, db.Close())
	db = openDB(t, path, bolt.Options{})
	defer db.Close()
	origin, err = db.Origin()
	require.NoError(t, err)
	require.Equal(t, "elsewhere", origin)
}
