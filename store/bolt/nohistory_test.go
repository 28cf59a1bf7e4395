package bolt_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// TestNoHistory opens a database without, with and again without histories. Each collection has one, or none, from its
// next list on, and never one that lacks a change.
func TestNoHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	var db *bolt.DB
	var c store.Collection
	reopen := func(opts bolt.Options) {
		if db != nil {
			require.NoError(t, db.Close())
		}
		db = openDB(t, path, opts)
		c = openCollection(t, db, storetest.Info("a"))
	}
	list := func(rv int) { // of the history that the collection has
		r, err := c.Replace()
		require.NoError(t, err)
		require.NoError(t, r.Apply([]store.Change{put(0, 1)}))
		require.NoError(t, r.Commit(now(rv)))
	}
	apply := func(i, rv int) {
		require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{put(i, rv)}, Checkpoint: now(rv)}))
	}
	none := func(since string) {
		t.Helper()
		_, err := changesOf(t, c, since)
		require.ErrorAs(t, err, new(*store.TooOldError))
	}
	has := func(since string, want ...string) {
		t.Helper()
		lines, err := changesOf(t, c, since)
		require.NoError(t, err)
		require.Equal(t, want, lines)
	}

	reopen(bolt.Options{NoHistory: true})
	list(10)
	apply(1, 20)
	none("10")
	has("20")
	require.Equal(t, "20", horizonOf(t, c).RV)
	reopen(bolt.Options{})
	apply(2, 30)
	none("20")
	list(40)
	apply(3, 50)
	has("40", "50 ns/3")
	reopen(bolt.Options{NoHistory: true})
	apply(4, 60)
	has("40", "50 ns/3", "60 ns/4")
	list(70)
	none("60")
	apply(5, 80)
	none("70")
	require.NoError(t, db.Flush())
	require.NoError(t, db.Close())
	report := checkReport(t, path, bolt.Keyring{})
	require.Empty(t, report.Problems)
	require.Empty(t, report.Notes)
}
