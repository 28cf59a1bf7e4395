package bolt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// If a file is too large for a 32-bit program to map, the error has the next step, and is neither
// ErrForeign nor corruption: the file stays for a program that can map it.
func TestTooLargeToMap(t *testing.T) {
	const limit = 64 << 10
	dir := t.TempDir()
	path := filepath.Join(dir, "cache.db")
	refused := func(opts bolt.Options, what string) {
		t.Helper()
		_, err := bolt.Open(path, opts)
		require.ErrorIs(t, err, store.ErrTooLarge)
		require.NotErrorIs(t, err, store.ErrForeign)
		require.ErrorContains(t, err, what)
	}

	refused(bolt.Mapping(bolt.Options{MaxBytes: limit + 1}, limit), "set store.maxSize to 65536 or less")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is made for a quota that is refused")

	db, err := bolt.Open(path, bolt.Mapping(bolt.Options{MaxBytes: 4 << 20}, 4<<20))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, readOnly := range []bool{false, true} {
		refused(bolt.Mapping(bolt.Options{MaxBytes: info.Size() - 1, ReadOnly: readOnly}, info.Size()-1), "with a 64-bit one")
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)

	db, err = bolt.Open(path, bolt.Mapping(bolt.Options{MaxBytes: info.Size()}, info.Size()))
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
