package bolt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// A batch takes the old objects from the reads that it was computed from, without decoding them again
// for the indexes; but not if the collection or the file has changed since.
func TestApplyTakesWhatWasRead(t *testing.T) {
	indexed := map[*object.Object]bool{}
	index := store.Index{Name: "app", Func: func(o *object.Object) []string {
		indexed[o] = true
		return []string{o.Labels()["app"]}
	}}
	path := filepath.Join(t.TempDir(), "cache.db")
	db := openDB(t, path, bolt.Options{})
	defer func() { require.NoError(t, db.Close()) }()
	info := store.Info{ID: "pods", Version: "v1", Resource: "pods"}
	coll := openCollection(t, db, info, index)
	version := func(rv string) *object.Object {
		return storetest.Object("shop", "till", "u", rv, map[string]string{"app": "app-" + rv}, "")
	}
	apply := func(o *object.Object, read store.Lookup) {
		t.Helper()
		require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{storetest.Put(o)}, Read: read}))
		v, err := coll.View()
		require.NoError(t, err)
		defer v.Close()
		require.EqualValues(t, 1, v.State().Count)
		n := 0
		for e, err := range v.IndexEntries("app", "", store.IndexEntry{}) {
			require.NoError(t, err)
			require.Equal(t, o.Labels()["app"], e.Value)
			n++
		}
		require.Equal(t, 1, n, "entries of the index")
	}
	get := func(l store.Lookup, rv string) *object.Object {
		t.Helper()
		o, err := l.Get("shop/till")
		require.NoError(t, err)
		require.Equal(t, rv, o.GetResourceVersion())
		return o
	}
	absent := coll.Lookup()
	_, err := absent.Get("shop/till")
	require.ErrorIs(t, err, store.ErrNotFound)
	apply(version("1"), absent)
	apply(version("2"), absent) // of a time before the object

	read := coll.Lookup()
	o := get(read, "2")
	apply(version("3"), read)
	require.True(t, indexed[o], "the stored object was decoded although the caller had read it")

	o = get(read, "3") // a lookup that is used again reads the newest state
	require.NoError(t, db.Flush())
	require.NoError(t, db.Fold()) // moves the record to another place
	apply(version("4"), read)
	require.False(t, indexed[o], "what was read before a commit was taken")

	get(read, "4")
	require.NoError(t, coll.Close())
	again, err := db.Open(info, index) // the next owner
	require.NoError(t, err)
	require.NoError(t, again.Apply(store.Batch{Changes: []store.Change{storetest.Put(version("5"))}}))
	coll = again
	apply(version("6"), read)

	read = coll.Lookup()
	require.NoError(t, db.Drop(info.ID))
	_, err = read.Header("shop/till")
	require.ErrorIs(t, err, store.ErrNoCollection)
}

// A read of a page that the disk could not give back does not count as a key without an object.
func TestApplyAfterUnreadableLookup(t *testing.T) {
	path := foldedSample(t)
	db := openDB(t, path, bolt.Options{HistoryRetention: storetest.HistoryRetention})
	defer func() { require.NoError(t, db.Close()) }()
	coll := openCollection(t, db, storetest.Info("pods"), append(lifeIndexes(), mine)...)
	before := coll.State()
	o := sampleObject(2, 200)
	_, err := coll.Header(o.Key())
	require.NoError(t, err)
	read := coll.Lookup()
	_, err = read.Header("no/such")
	require.ErrorIs(t, err, store.ErrNotFound)
	whole := readFile(t, path)
	require.NoError(t, os.Truncate(path, 2*4096)) // reading the mapping behind it is a fault
	_, err = read.Header(o.Key())
	require.ErrorAs(t, err, new(*store.CorruptionError))
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{storetest.Put(o)}, Checkpoint: storetest.Checkpoint(200), Read: read}))
	require.Equal(t, before.Count, coll.State().Count)
}
