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

// TestViewBesideAHalfDoneFold: a view that has taken an empty memtable, before changes came and half of them
// were folded, sees either none of them or all.
func TestViewBesideAHalfDoneFold(t *testing.T) {
	const limit, objects = 24 << 10, 100
	db, _ := newDBByHand(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, nil, 1)
	require.NoError(t, db.Fold())
	var changes []store.Change
	for n := range objects {
		changes = append(changes, storetest.Put(storetest.Object("ns", fmt.Sprint("o-", n), "u", "2", nil, incompressible(n))))
	}
	slices := 0
	v, err := db.ViewAfter("a", func() {
		if slices == 0 {
			require.NoError(t, c.Apply(store.Batch{Changes: changes, Checkpoint: goingOn(2)}))
			require.NoError(t, db.FoldSlices(limit, func() bool { slices++; return slices < 3 }))
		}
	})
	require.NoError(t, err)
	defer v.Close()
	require.Equal(t, 3, slices, "the fold is half done")
	found := 0
	for _, err := range v.Headers("", "") {
		require.NoError(t, err)
		found++
	}
	require.EqualValues(t, v.State().Count, found)
}
