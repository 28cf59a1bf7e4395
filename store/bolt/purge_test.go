package bolt_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// noisy returns an object whose record compresses badly, so that its bytes can be found.
func noisy(collection string, i, rv int) store.Change {
	noise := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s %d %d", collection, i, rv)))
	return storetest.Put(storetest.Object("ns", fmt.Sprintf("o%04d", i), fmt.Sprint(i), fmt.Sprint(rv), nil, noise))
}

// records returns the records of a closed database by collection, deleted objects included. No two
// are equal: they name their dictionaries, and each collection has its own.
func records(t *testing.T, path string) map[string][][]byte {
	t.Helper()
	db := openRaw(t, path, &bbolt.Options{ReadOnly: true})
	defer db.Close()
	found := map[string][][]byte{}
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("c")).ForEachBucket(func(id []byte) error {
			gen := tx.Bucket([]byte("c")).Bucket(id)
			for _, name := range []string{"objects", "tombs"} {
				require.NoError(t, gen.ForEachBucket(func(g []byte) error {
					return gen.Bucket(g).Bucket([]byte(name)).ForEach(func(_, v []byte) error {
						found[string(id)] = append(found[string(id)], bytes.Clone(v))
						return nil
					})
				}))
			}
			return nil
		})
	}))
	return found
}

func count(t *testing.T, path string, needles [][]byte) (n int) {
	t.Helper()
	b := readFile(t, path)
	for _, needle := range needles {
		if bytes.Contains(b, needle) {
			n++
		}
	}
	return n
}

// TestPurge purges one collection of two and rewrites the file. No byte of its records, its history
// or its changes in the journal is in the file then, and all of the other collection is.
func TestPurge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	open := func() *bolt.DB {
		db := openDB(t, path, bolt.Options{FlushInterval: time.Hour, HistoryRetention: storetest.HistoryRetention})
		return db
	}
	db := open()
	ids := []string{"keep", "purge"}
	for _, id := range ids {
		c := openCollection(t, db, storetest.Info(id), lifeIndexes()...)
		r, err := c.Replace()
		require.NoError(t, err)
		for i := range 400 {
			require.NoError(t, r.Apply([]store.Change{noisy(id, i, i+1)}))
		}
		require.NoError(t, r.Commit(storetest.Checkpoint(1000)))
		require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{{Key: "ns/o0001", RV: "1001"}}, Checkpoint: storetest.Checkpoint(1001)}))
	}
	require.NoError(t, db.SetForbiddenFor("purge", time.Hour))
	require.NoError(t, db.Close())
	before := records(t, path)
	require.Equal(t, 400, count(t, path, before["purge"]))

	db = open()
	refused, err := db.ForbiddenFor("purge")
	require.NoError(t, err)
	require.Equal(t, time.Hour, refused)
	for _, id := range ids {
		c := openCollection(t, db, storetest.Info(id), lifeIndexes()...)
		require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{noisy(id, 2, 1002)}, Checkpoint: storetest.Checkpoint(1002)}))
	}
	require.NoError(t, db.Flush(), "to the journal")
	due, err := db.SanitizeDue()
	require.NoError(t, err)
	require.False(t, due)
	require.NoError(t, db.Purge("purge"))
	_, err = db.View("purge")
	require.ErrorIs(t, err, store.ErrNoCollection)
	require.Positive(t, count(t, path, before["purge"]), "in free pages")
	v := view(t, db, "keep")
	h, err := v.Header("ns/o0002")
	require.NoError(t, err)
	require.Equal(t, "1002", h.RV, "a change that was only in the journal")
	v.Close()
	require.NoError(t, db.Close())

	db = open()
	due, err = db.SanitizeDue()
	require.NoError(t, err)
	require.True(t, due, "a restart knows of it")
	was := inode(t, path)
	require.NoError(t, db.Sanitize(t.Context()))
	require.NotEqual(t, was, inode(t, path))
	due, err = db.SanitizeDue()
	require.NoError(t, err)
	require.False(t, due)
	require.NoError(t, db.Close())
	require.Zero(t, count(t, path, before["purge"]))
	require.NoFileExists(t, path+".compact")
	after := records(t, path)
	require.Len(t, after, 1)
	require.Len(t, after["keep"], 400)
	report := checkReport(t, path, bolt.Keyring{})
	require.True(t, report.OK(), "%v", report.Problems)
}
