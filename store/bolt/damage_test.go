package bolt_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// corruptFile writes a database of 20 objects and changes the record of one.
func corruptFile(t *testing.T, key string, damage func([]byte) []byte) (path string, m *storetest.Model) {
	db, path := newDB(t, bolt.Options{})
	c := openCollection(t, db, storetest.Info("a"), lifeIndexes()...)
	m = storetest.NewModel(storetest.Info("a"), lifeIndexes()...)
	var changes []store.Change
	for i := range 20 {
		o := sampleObject(i, i+1)
		m.Objects[o.Key()] = o
		changes = append(changes, storetest.Put(o))
	}
	replaceAll(t, c, changes, 30)
	require.NoError(t, db.Close())
	edit(t, path, func(tx *bbolt.Tx) error {
		b := bucketAt(tx, "c/a/g1/objects")
		return b.Put([]byte(key), damage(append([]byte(nil), b.Get([]byte(key))...)))
	})
	return path, m
}

// If a corrupt record is overwritten or deleted, the totals are right afterwards.
func TestTotalsAfterDamage(t *testing.T) {
	corrupt := sampleObject(7, 8)
	for _, c := range []struct {
		name   string
		damage func([]byte) []byte
	}{
		{"payload", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }},
		{"checksum", func(b []byte) []byte { b[3] ^= 1; return b }},
		{"codec", func(b []byte) []byte { b[1] ^= 1; return b }},
		{"length", func(b []byte) []byte { b[7] ^= 1; return b }},
		{"uid", func(b []byte) []byte { b[9] ^= 0x40; return b }},
		{"cut", func(b []byte) []byte { return b[:len(b)/2] }},
		{"stub", func(b []byte) []byte { return b[:3] }},
		{"nothing", func([]byte) []byte { return []byte{} }},
	} {
		for _, way := range []string{"put", "delete", "relist", "large relist"} {
			t.Run(c.name+", "+way, func(t *testing.T) {
				path, m := corruptFile(t, corrupt.Key(), c.damage)
				db := openDB(t, path, bolt.Options{ReplaceBudget: map[string]int{"large relist": 1}[way]})
				c := openCollection(t, db, storetest.Info("a"), lifeIndexes()...)
				o := storetest.Object("site", "o-07", "uid-7", "40", corrupt.Labels(), "of another length")
				require.Equal(t, corrupt.Key(), o.Key())
				change := storetest.Put(o)
				m.Objects[o.Key()] = o
				if way == "delete" {
					change = storetest.Delete(o.Key())
					delete(m.Objects, o.Key())
				}
				// Another change in the same batch, and one in the next.
				other := sampleObject(4, 41)
				m.Objects[other.Key()] = other
				batch := []store.Change{change, storetest.Put(other)}
				if way == "put" || way == "delete" {
					require.NoError(t, c.Apply(store.Batch{Changes: batch, Checkpoint: storetest.Checkpoint(41)}))
				} else {
					replaceAll(t, c, batch, 41)
				}
				require.Equal(t, m.State().Count, c.State().Count)
				require.Equal(t, m.State().Bytes, c.State().Bytes)
				require.NoError(t, db.Close())
				report := checkReport(t, path, bolt.Keyring{})
				require.Empty(t, report.Problems)
			})
		}
	}
}

// Each way to read a corrupt record calls Options.OnCorrupt.
func TestOnCorrupt_IsCalledForEachRead(t *testing.T) {
	const key = "site/o-07"
	path, _ := corruptFile(t, key, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	var mu sync.Mutex
	var reported []string
	take := func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { reported = nil }()
		return reported
	}
	db, err := bolt.Open(path, bolt.Options{OnCorrupt: func(collection, key string) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, collection+" "+key)
	}})
	require.NoError(t, err)
	defer db.Close()
	c := openCollection(t, db, storetest.Info("a"), lifeIndexes()...)
	require.Empty(t, take(), "nothing was read yet")
	v, err := c.View()
	require.NoError(t, err)
	defer v.Close()
	for _, c := range []struct {
		name string
		read func() error
	}{
		{"Get", func() error { _, err := v.Get(key); return err }},
		{"Header", func() error { _, err := v.Header(key); return err }},
		{"Objects", func() (found error) {
			for _, err := range v.Objects("", "") {
				if err != nil {
					found = err
				}
			}
			return found
		}},
		{"Headers", func() (found error) {
			for _, err := range v.Headers("site/", "") {
				if err != nil {
					found = err
				}
			}
			return found
		}},
	} {
		require.ErrorAs(t, c.read(), new(*store.CorruptionError), c.name)
		require.Equal(t, []string{"a " + key}, take(), c.name)
	}
	_, err = v.Get("shop/o-06")
	require.NoError(t, err)
	_, err = v.Get("shop/none")
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Empty(t, take(), "nothing is wrong with these")
}

// If the dictionary of a record is lost, each way to read the record reports it as corrupt, so that
// a list replaces it.
func TestCorruptDictionary(t *testing.T) {
	path, m := corruptFile(t, "site/o-07", func(b []byte) []byte { return b })
	edit(t, path, func(tx *bbolt.Tx) error {
		b := bucketAt(tx, "dict")
		k, v := b.Cursor().First()
		v = append([]byte(nil), v...)
		v[len(v)-1] ^= 1
		return b.Put(append([]byte(nil), k...), v)
	})
	db := openDB(t, path, bolt.Options{})
	defer db.Close()
	v := view(t, db, "a")
	defer v.Close()
	for key := range m.Objects {
		_, err := v.Header(key)
		require.ErrorAs(t, err, new(*store.CorruptionError))
		_, err = v.Get(key)
		require.ErrorAs(t, err, new(*store.CorruptionError))
	}
}
