package bolt_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// If a file is too large for a 32-bit program to map, the error has the next step, and is neither
// ErrForeign nor corruption: the file stays for a program that can map it.
func TestTooLargeToMap(t *testing.T) {
	if strconv.IntSize > 32 {
		t.Skip("a 64-bit program maps any file")
	}
	const limit = 1 << 30
	dir := t.TempDir()
	path := filepath.Join(dir, "cache.db")
	refused := func(opts bolt.Options, what string) {
		t.Helper()
		_, err := bolt.Open(path, opts)
		require.ErrorIs(t, err, store.ErrTooLarge)
		require.NotErrorIs(t, err, store.ErrForeign)
		require.ErrorContains(t, err, what)
	}

	refused(bolt.Options{MaxBytes: limit + 1}, "set store.maxSize to 1073741824 or less")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is made for a quota that is refused")

	db := openDB(t, path, bolt.Options{MaxBytes: limit})
	require.NoError(t, db.Close())
	before := readFile(t, path)
	require.NoError(t, os.Truncate(path, limit+1)) // sparse
	for _, readOnly := range []bool{false, true} {
		refused(bolt.Options{ReadOnly: readOnly}, "with a 64-bit one")
	}
	require.NoError(t, os.Truncate(path, int64(len(before))))
	require.Equal(t, before, readFile(t, path))
}
