package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// A list is of the state that was looked at, though the store goes on before it is made.
func TestListOfOneState(t *testing.T) {
	db := New()
	defer func() { require.NoError(t, db.Close()) }()
	coll, err := db.Open(storetest.Info("configmaps"), store.LabelIndex("app", "app"))
	require.NoError(t, err)
	apply := func(rv string) store.Change {
		ch := storetest.Put(storetest.Object("shop", "a", "u", rv, map[string]string{"app": "x"}, ""))
		require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{ch}}))
		return ch
	}
	first := apply("1")
	v, err := coll.(*handle).look()
	require.NoError(t, err)
	apply("2")
	x, err := v.usableIndex("app")
	require.NoError(t, err)
	keys, ok := x.values.get("x")
	require.True(t, ok)
	list := v.at(keys.settled())
	require.Len(t, list, 1)
	require.Same(t, first.Object, list[0])
}
