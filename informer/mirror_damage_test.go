package informer_test

import (
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// unreadableDB is a store whose records at key a have other bytes.
type unreadableDB struct {
	store.DB
	decode func(key string, stored, buf []byte) ([]byte, error)
}

func (db unreadableDB) Open(info store.Info, indexes ...store.Index) (store.Collection, error) {
	c, err := db.DB.Open(info, indexes...)
	return unreadable{c, db}, err
}

type unreadable struct {
	store.Collection
	db unreadableDB
}

func (c unreadable) View() (store.View, error) {
	v, err := c.Collection.View()
	return unreadableView{v, c.db}, err
}

type unreadableView struct {
	store.View
	db unreadableDB
}

func (v unreadableView) Records(prefix, after string) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for r, err := range v.View.Records(prefix, after) {
			if r.Key == "ns/a" {
				r.Object, r.Decode = nil, v.db.decode
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// With a corrupt record, the collection is the durable one, which reports it; any other error fails
// the opening.
func TestMirrorOfUnreadableObjects(t *testing.T) {
	for _, c := range []struct {
		name   string
		decode func(key string, stored, buf []byte) ([]byte, error)
		fails  bool
	}{
		{"corrupt", func(key string, _, _ []byte) ([]byte, error) { return nil, &store.CorruptionError{Key: key} }, false},
		{"no object", func(string, []byte, []byte) ([]byte, error) { return []byte("{}"), nil }, false},
		{"another error", func(string, []byte, []byte) ([]byte, error) { return nil, store.ErrClosed }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := unreadableDB{memory.New(), c.decode}
			coll, err := db.Open(storetest.Info("test"))
			require.NoError(t, err)
			require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{storetest.Put(obj("a", "1", 3)), storetest.Put(obj("b", "2", 5))}}))
			require.NoError(t, coll.Close())
			m, err := informer.OpenMirror(db, storetest.Info("test"))
			if c.fails {
				require.ErrorIs(t, err, store.ErrClosed)
				return
			}
			require.NoError(t, err)
			require.IsType(t, unreadable{}, m)
		})
	}
}

// damage changes the stored record of a key, if there is one.
func damage(t require.TestingT, path, key string) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte("test"))
		return c.ForEachBucket(func(gen []byte) error {
			objects := c.Bucket(gen).Bucket([]byte("objects"))
			record := slices.Clone(objects.Get([]byte(key)))
			if len(record) == 0 {
				return nil
			}
			record[len(record)-1] ^= 1
			return objects.Put([]byte(key), record)
		})
	}))
	require.NoError(t, db.Close())
}
