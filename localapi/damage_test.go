package localapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// spoil changes the stored bytes of records or, with spoilInfo, a collection's description.
func spoil(t *testing.T, path, collection string, keys ...string) {
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte(collection))
		return c.ForEachBucket(func(gen []byte) error {
			objects := c.Bucket(gen).Bucket([]byte("objects"))
			for _, key := range keys {
				record := append([]byte(nil), objects.Get([]byte(key))...)
				record[len(record)-1] ^= 0xff
				if err := objects.Put([]byte(key), record); err != nil {
					return err
				}
			}
			return nil
		})
	}))
	require.NoError(t, db.Close())
}

// corruptSources returns all kinds of Source on the fixture with two corrupt records.
func corruptSources(t *testing.T) map[string]Source {
	db, path := newBolt(t)
	fixture(t, db)
	require.NoError(t, db.Close())
	spoil(t, path, "configmaps", "a/one", "shop/two")
	spoil(t, path, "nodes", "edge-1", "edge-2")
	db, err := bolt.Open(path, bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	src := FromDB(db, options(t, "bolt"))
	return map[string]Source{"bolt": src, "socket": serve(t, src)}
}

// Corrupt records don't hide the others, and the answer ends in an error that names them.
func TestCorruptRecords(t *testing.T) {
	for name, src := range corruptSources(t) {
		t.Run(name, func(t *testing.T) {
			objects, err := objectKeys(src, "configmaps", ObjectQuery{})
			require.Equal(t, []string{"a-b/one", "a/two", "shop/one"}, objects)
			requireDamage(t, err, "a/one", "shop/two")
			require.ErrorContains(t, err, "collection configmaps: record a/one is corrupt: checksum does not match")

			keys, err := allKeys(src, "configmaps", KeyQuery{})
			require.Len(t, keys, 3)
			requireDamage(t, err, "a/one", "shop/two")

			keys, err = allKeys(src, "configmaps", KeyQuery{Index: "app", Value: "till"})
			require.Len(t, keys, 1)
			requireDamage(t, err, "a/one")

			values, err := indexOf(context.Background(), src, "configmaps", "app")
			require.Len(t, values, 2)
			requireDamage(t, err, "a/one")

			objects, err = objectKeys(src, "configmaps", ObjectQuery{Namespace: "a-b"})
			require.NoError(t, err, "records outside the query don't matter")
			require.Len(t, objects, 1)

			objects, err = objectKeys(src, "configmaps", ObjectQuery{Key: "a/one"})
			require.Empty(t, objects)
			requireDamage(t, err, "a/one")
			objects, err = objectKeys(src, "configmaps", ObjectQuery{Key: "a/two"})
			require.NoError(t, err)
			require.Len(t, objects, 1)

			objects, err = objectKeys(src, "nodes", ObjectQuery{})
			require.Empty(t, objects, "all objects of the query are corrupt")
			requireDamage(t, err, "edge-1", "edge-2")
			values, err = indexOf(context.Background(), src, "nodes", "namespace")
			require.Empty(t, values)
			requireDamage(t, err, "edge-1", "edge-2")
		})
	}
}

func requireDamage(t *testing.T, err error, keys ...string) {
	t.Helper()
	var damage *CorruptRecordsError
	require.ErrorAs(t, err, &damage)
	require.ErrorAs(t, err, new(*store.CorruptionError))
	var got []string
	for _, d := range damage.Corruptions {
		require.NotEmpty(t, d.Path)
		require.NotEmpty(t, d.Collection)
		got = append(got, d.Key)
	}
	require.Equal(t, keys, got)
}

// A collection that can't be opened does not hide the others.
func TestCorruptCollection(t *testing.T) {
	db, path := newBolt(t)
	fixture(t, db)
	require.NoError(t, db.Close())
	raw, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("c")).Bucket([]byte("nodes")).Put([]byte("state"), []byte("{"))
	}))
	require.NoError(t, raw.Close())
	db, err = bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	defer db.Close()
	src := FromDB(db, options(t, "bolt"))
	for _, tc := range []namedSource{{"bolt", src}, {"socket", serve(t, src)}} {
		status, err := tc.src.Status(context.Background())
		require.NoError(t, err, tc.name)
		require.Len(t, status.Collections, 4, tc.name)
		require.Equal(t, "nodes", status.Collections[2].ID)
		require.Contains(t, status.Collections[2].Problem, "corrupt", tc.name)
		require.False(t, status.Collections[2].Synced, tc.name)
		_, err = objectKeys(tc.src, "nodes", ObjectQuery{})
		require.ErrorAs(t, err, new(*store.CorruptionError), tc.name)
	}
}

// An index and the objects are one state: a key that is only in the index is corruption, not an
// object that was deleted.
func TestIndexKeyWithoutObject(t *testing.T) {
	db, path := newBolt(t)
	fixture(t, db)
	require.NoError(t, db.Close())
	raw, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte("configmaps"))
		return c.ForEachBucket(func(gen []byte) error {
			return c.Bucket(gen).Bucket([]byte("objects")).Delete([]byte("a/one"))
		})
	}))
	require.NoError(t, raw.Close())
	db, err = bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	defer db.Close()
	keys, err := allKeys(FromDB(db, options(t, "bolt")), "configmaps", KeyQuery{Index: "app", Value: "till"})
	require.Len(t, keys, 1)
	requireDamage(t, err, "a/one")
	require.ErrorContains(t, err, "it is in index app")
}

// The list of corrupt records in an answer is limited, but the count is exact.
func TestDamageIsBounded(t *testing.T) {
	var d damage
	require.NoError(t, d.err())
	require.False(t, d.add(errors.New("another error")))
	for i := range 3 * maxDamages {
		c := &store.CorruptionError{Path: "f", Collection: "c", Key: fmt.Sprint(i), Reason: "r"}
		require.True(t, d.add(fmt.Errorf("wrapped: %w", c)))
		if i < maxDamages {
			require.True(t, d.add(c), "the same record again")
		}
	}
	var all *CorruptRecordsError
	require.ErrorAs(t, d.err(), &all)
	require.Len(t, all.Corruptions, maxDamages)
	require.Equal(t, 2*maxDamages, all.More)
	require.ErrorContains(t, all, "and 200 more corrupt records")

	w, code := toWire(d.err())
	require.Equal(t, 500, code)
	text, err := json.Marshal(w)
	require.NoError(t, err)
	require.Contains(t, string(text), `"corruptions":[{"path":"f","collection":"c","key":"0","reason":"r"},`)
	back := errorIn(text)
	require.EqualError(t, back, all.Error())
	var again *CorruptRecordsError
	require.ErrorAs(t, back, &again)
	require.Equal(t, all, again)
}
