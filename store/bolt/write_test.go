package bolt_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// TestApply_Old checks that the stored object that a caller has read already is not decoded again
// for the indexes, and that one of another version is.
func TestApply_Old(t *testing.T) {
	indexed := map[*object.Object]bool{}
	index := store.Index{Name: "app", Func: func(o *object.Object) []string {
		indexed[o] = true
		return []string{o.Labels()["app"]}
	}}
	db, err := bolt.Open(filepath.Join(t.TempDir(), "cache.db"), bolt.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	coll, err := db.Open(store.Info{ID: "pods", Version: "v1", Resource: "pods"}, index)
	require.NoError(t, err)
	version := func(rv string) *object.Object {
		return storetest.Object("shop", "till", "u", rv, map[string]string{"app": "app-" + rv}, "")
	}
	apply := func(o, old *object.Object) {
		t.Helper()
		change := storetest.Put(o)
		change.Old = old
		require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{change}}))
		v, err := coll.View()
		require.NoError(t, err)
		defer v.Close()
		n := 0
		for e, err := range v.IndexEntries("app", "", store.IndexEntry{}) {
			require.NoError(t, err)
			require.Equal(t, o.Labels()["app"], e.Value)
			n++
		}
		require.Equal(t, 1, n, "entries of the index")
	}
	apply(version("1"), nil)
	read := version("1")
	apply(version("2"), read)
	require.True(t, indexed[read], "the stored object was decoded although the caller had read it")
	apply(version("3"), read)
}
