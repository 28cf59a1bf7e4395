package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// Numbers too large for a machine word are in order too, after those that fit in one.
func TestLongResourceVersions(t *testing.T) {
	const below, last, above = "184467440737095516", "18446744073709551615", "1844674407370955162"
	db := memory.New()
	defer db.Close()
	coll, err := db.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	at := func(rv string) store.Checkpoint { c := storetest.Checkpoint(1); c.RV = rv; return c }
	one := func(name, rv string) store.Change {
		return storetest.Put(storetest.Object("shop", name, "uid-"+name, rv, nil, "x"))
	}
	r, err := coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Commit(at(below+"10")))
	require.NoError(t, coll.Apply(store.Batch{Checkpoint: at(last), Changes: []store.Change{one("a", below+"12"), one("b", last)}}))
	require.NoError(t, coll.Apply(store.Batch{Checkpoint: at(above + "5"), Changes: []store.Change{
		one("d", above+"4"), one("c", above+"1"), one("a", above+"3"), {Key: "shop/b"}, // at the checkpoint
	}}))
	require.NoError(t, coll.Apply(store.Batch{Checkpoint: at(above + "9"), Changes: []store.Change{{Key: "shop/c", RV: above + "7"}}}))
	v, err := coll.View()
	require.NoError(t, err)
	defer v.Close()
	since := func(rv string) (lines []string) {
		for e, err := range v.Changes(rv) {
			require.NoError(t, err)
			lines = append(lines, e.Key+"@"+e.RV)
		}
		return lines
	}
	all := []string{"shop/a@" + above + "3", "shop/d@" + above + "4", "shop/b@" + above + "5", "shop/c@" + above + "7"}
	require.Equal(t, all, since(below+"10"))
	require.Equal(t, all, since(last))
	require.Equal(t, all[2:], since(above+"4"))
}
