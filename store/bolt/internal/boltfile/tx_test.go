package boltfile

import (
	"path/filepath"
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
