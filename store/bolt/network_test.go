package bolt_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// A database on a network file system is refused for writing, with the reason, and no file is made.
// An existing file can be read.
func TestNetworkFS(t *testing.T) {
	dir := t.TempDir()
	mount := filepath.Join(dir, "mount")
	require.NoError(t, os.Mkdir(mount, 0o700))
	network := func(path string) (string, error) {
		if _, err := os.Stat(path); err != nil {
			return "", err
		}
		if within, err := filepath.Rel(mount, path); err == nil && filepath.IsLocal(within) {
			return "NFS", nil
		}
		return "", nil
	}
	opts := bolt.OnFileSystem(bolt.Options{}, network)
	path := filepath.Join(mount, "new", "cache.db")
	_, err := bolt.Open(path, opts)
	require.ErrorIs(t, err, store.ErrNetworkFS)
	require.ErrorContains(t, err, "(NFS)")
	require.NoDirExists(t, filepath.Dir(path))

	local := filepath.Join(dir, "new", "cache.db")
	db, err := bolt.Open(local, opts)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	moved := filepath.Join(mount, "cache.db")
	require.NoError(t, os.Rename(local, moved))
	before, err := os.ReadFile(moved)
	require.NoError(t, err)
	_, err = bolt.Open(moved, opts)
	require.ErrorIs(t, err, store.ErrNetworkFS)
	after, err := os.ReadFile(moved)
	require.NoError(t, err)
	require.Equal(t, before, after)
	opts.ReadOnly = true
	db, err = bolt.Open(moved, opts)
	require.NoError(t, err)
	require.NoError(t, db.Close())

	_, err = bolt.Open(filepath.Join(dir, "other.db"), bolt.OnFileSystem(bolt.Options{}, func(string) (string, error) { return "", fs.ErrPermission }))
	require.ErrorIs(t, err, fs.ErrPermission)
}

// The numbers of the kernel.
func TestFileSystemNames(t *testing.T) {
	name, err := bolt.NetworkFS(t.TempDir())
	require.NoError(t, err)
	require.Empty(t, name, "tests don't run over a network")
	_, err = bolt.NetworkFS(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}
