package boltfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// If the file is replaced while an open waits for its lock, the open must not succeed: its
// writes would be lost with the old file. Open calls names.
func TestNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.True(t, names(path, f))
	require.NoError(t, os.Rename(path, path+".old"))
	require.False(t, names(path, f), "there is none")
	require.NoError(t, os.WriteFile(path, []byte("new"), 0o600))
	require.False(t, names(path, f), "it is another")
}

// A quota or a file that can't be mapped is refused, with the next step; the limit itself can be.
func TestMappable_AboveLimit_IsTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	require.NoError(t, os.WriteFile(path, make([]byte, 100), 0o600))
	require.NoError(t, mappable(path, Options{MaxBytes: 100}, 100))
	require.NoError(t, mappable(path, Options{MaxBytes: 101, ReadOnly: true}, 100), "the quota is for writes")
	require.NoError(t, mappable(path+".none", Options{}, 99))

	err := mappable(path, Options{MaxBytes: 101}, 100)
	require.ErrorIs(t, err, store.ErrTooLarge)
	require.ErrorContains(t, err, "set store.maxSize to 100 or less")
	for _, readOnly := range []bool{false, true} {
		err := mappable(path, Options{MaxBytes: 99, ReadOnly: readOnly}, 99)
		require.ErrorIs(t, err, store.ErrTooLarge)
		require.ErrorContains(t, err, "with a 64-bit one")
	}
}
