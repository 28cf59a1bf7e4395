package restore

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// A file with any content is reset only while no process has it open, and deleted only on request.
func TestReset(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "cache.db")
	_, err := Reset(path, true, now)
	require.ErrorIs(t, err, store.ErrNoStore)
	_, err = Reset(filepath.Dir(path), true, now)
	require.ErrorContains(t, err, "not a regular file")

	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	for _, remove := range []bool{false, true} {
		_, err = Reset(path, remove, now)
		require.ErrorIs(t, err, store.ErrLocked)
		require.FileExists(t, path)
	}
	require.NoError(t, db.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)

	link := path + "-link"
	require.NoError(t, os.Symlink(path, link))
	aside, err := Reset(link, false, now)
	require.NoError(t, err)
	require.Equal(t, path+".reset-20260304T050607Z", aside)
	require.NoFileExists(t, path)
	moved, err := os.ReadFile(aside)
	require.NoError(t, err)
	require.Equal(t, whole, moved)

	for _, name := range []string{path, path + ".compact", path + ".new", path + ".restore"} {
		require.NoError(t, os.WriteFile(name, []byte("garbage"), 0o600))
	}
	aside, err = Reset(path, true, now)
	require.NoError(t, err)
	require.Empty(t, aside)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 2, "the link, and what was set aside before")
}
