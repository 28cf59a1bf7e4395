package bolt_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

var till = store.Description{Singular: "till", SelectableFields: []string{".spec.size"}}

// described makes a closed database with a described collection "a".
func described(t *testing.T, keys bolt.Keyring) (path string) {
	db, path := newDB(t, bolt.Options{Keys: keys})
	c := openCollection(t, db, storetest.Info("a"))
	require.NoError(t, c.Describe(till))
	require.NoError(t, db.Close())
	return path
}

func descriptionIn(t *testing.T, path string, keys bolt.Keyring) store.Description {
	db := openDB(t, path, bolt.Options{ReadOnly: true, Keys: keys})
	defer db.Close()
	return descriptionOf(t, db)
}

func descriptionOf(t *testing.T, db *bolt.DB) store.Description {
	v := view(t, db, "a")
	defer v.Close()
	d, err := v.Description()
	require.NoError(t, err)
	return d
}

// backupOf returns a file with the content of a backup.
func backupOf(t *testing.T, db *bolt.DB) string {
	path := filepath.Join(t.TempDir(), "copy.db")
	hotCopyTo(t, db, path)
	return path
}

// A description is one sealed value of the collection, in the file once it is flushed. The same one
// again is not written.
func TestDescriptionInFile(t *testing.T) {
	db, path := newDB(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("a"))
	require.NoError(t, c.Describe(till))
	require.NoError(t, db.Flush())
	commits := db.Stats().Commits
	require.NoError(t, c.Describe(till))
	require.NoError(t, db.Flush())
	require.Equal(t, commits, db.Stats().Commits)
	require.Equal(t, till, descriptionIn(t, backupOf(t, db), bolt.Keyring{}))
	require.NoError(t, db.Close())
	edit(t, path, func(tx *bbolt.Tx) error {
		raw, err := bolt.Unseal("a", []byte("about"), bucketAt(tx, "c/a").Get([]byte("about")))
		require.NoError(t, err)
		var got store.Description
		require.NoError(t, json.Unmarshal(raw, &got))
		require.Equal(t, till, got)
		return nil
	})
}

// A description survives a compaction and another key, and is not in clear in an encrypted file.
func TestDescriptionIsCopied(t *testing.T) {
	path := described(t, bolt.Keyring{})
	db := openDB(t, path, bolt.Options{Keys: keysOf(1)})
	defer db.Close()
	_, _, err := db.Compact(context.Background())
	require.NoError(t, err)
	require.False(t, db.Stats().EncryptionDue)
	require.Equal(t, till, descriptionIn(t, backupOf(t, db), keysOf(1)))
	require.NoError(t, db.Close())
	require.Equal(t, till, descriptionIn(t, path, keysOf(1)))
	require.NotContains(t, string(readFile(t, path)), "singular")
}

// A corrupt description counts as none, in a snapshot too, until another is stored. The collection
// stays in use.
func TestCorruptDescription(t *testing.T) {
	for _, keys := range []bolt.Keyring{{}, keysOf(1)} {
		path := described(t, keys)
		edit(t, path, func(tx *bbolt.Tx) error {
			raw := append([]byte{}, bucketAt(tx, "c/a").Get([]byte("about"))...)
			raw[len(raw)-3] ^= 1
			return bucketAt(tx, "c/a").Put([]byte("about"), raw)
		})
		report := checkReport(t, path, keys)
		require.True(t, report.Usable())
		require.Len(t, report.Notes, 2, "notes: no list yet, corrupt description")
		require.Contains(t, report.Notes[0].Reason, "about:")
		db := openDB(t, path, bolt.Options{Keys: keys})
		c := openCollection(t, db, storetest.Info("a"))
		require.Zero(t, descriptionOf(t, db))
		require.Zero(t, descriptionIn(t, backupOf(t, db), keys))
		require.NoError(t, c.Describe(till))
		require.Equal(t, till, descriptionOf(t, db))
		require.NoError(t, db.Close())
	}
}
