package boltfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// A bucket that the caller has read and that bbolt does not find to delete is corruption, so that
// the file is set aside.
func TestTx_DeleteBucket_NotFound_IsCorruption(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	f, err := Open(path, Options{})
	require.NoError(t, err)
	defer f.Close()
	err = f.Update(func(tx *Tx) error {
		_, err := tx.CreateBucket(format.BucketJournal)
		require.NoError(t, err)
		require.NoError(t, tx.DeleteBucket(format.BucketJournal))
		return tx.DeleteBucket(format.BucketJournal)
	})
	var damage *store.CorruptionError
	require.ErrorAs(t, err, &damage)
	require.Equal(t, path, damage.Path)
	require.Contains(t, damage.Reason, `bucket "journal" can't be deleted`)
}

// The same of a bucket in it, whose error bbolt returns only as text: two keys of its page are in
// the wrong order.
func TestTx_DeleteBucket_NestedNotFound_IsCorruption(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	f, err := Open(path, Options{})
	require.NoError(t, err)
	require.NoError(t, f.Update(func(tx *Tx) error {
		b, err := tx.CreateBucket(format.BucketJournal)
		require.NoError(t, err)
		for _, name := range []string{"first-entry", "other-entry"} {
			_, err := b.CreateBucket([]byte(name))
			require.NoError(t, err)
		}
		return nil
	}))
	require.NoError(t, f.Close())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	swapped := strings.NewReplacer("first-entry", "other-entry", "other-entry", "first-entry").Replace(string(raw))
	require.NoError(t, os.WriteFile(path, []byte(swapped), 0o600))
	f, err = Open(path, Options{})
	require.NoError(t, err)
	defer f.Close()
	err = f.Update(func(tx *Tx) error {
		require.NotNil(t, tx.Bucket(format.BucketJournal))
		return tx.DeleteBucket(format.BucketJournal)
	})
	var damage *store.CorruptionError
	require.ErrorAs(t, err, &damage)
	require.Contains(t, damage.Reason, `bucket "journal" can't be deleted: delete bucket: bucket not found`)
}
