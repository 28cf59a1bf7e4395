package bolt_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// The view that a writer keeps open between two batches ends with the next commit, so that it keeps
// no page from being used again, and does not block Close.
func TestWriterViewEndsWithACommit(t *testing.T) {
	db, _ := newDB(t, bolt.Options{FlushInterval: time.Hour})
	var all []store.Collection
	for _, id := range []string{"a", "b"} {
		c := openCollection(t, db, storetest.Info(id))
		replaceAll(t, c, nil, 1)
		all = append(all, c)
	}
	rv := 2
	apply := func() {
		for _, c := range all {
			o := storetest.Object("ns", fmt.Sprint("o-", rv), "u", fmt.Sprint(rv), nil, "x")
			require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{storetest.Put(o)}, Checkpoint: goingOn(rv)}))
			rv++
		}
	}
	for range 10 {
		apply() // which makes dictionaries
	}
	for range 3 {
		apply()
		require.Equal(t, 2, db.OpenReads(), "one read transaction for each collection")
		apply()
		require.Equal(t, 2, db.OpenReads())
		require.NoError(t, db.Flush())
		require.Zero(t, db.OpenReads())
		apply()
		require.NoError(t, db.Fold())
		require.Zero(t, db.OpenReads())
	}
	apply()
	require.Error(t, all[0].Apply(store.Batch{Changes: []store.Change{{}}}))
	for _, c := range all {
		require.EqualValues(t, 20, c.State().Count)
	}
	require.NoError(t, db.Close())
}
