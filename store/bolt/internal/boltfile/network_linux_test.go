package boltfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapcache/snapcache/store"
)

// callNetwork makes the file system of a path count as a network file system, until the returned
// function is called.
func callNetwork(t *testing.T, path string) (restore func()) {
	var s unix.Statfs_t
	require.NoError(t, unix.Statfs(path, &s))
	magic := uint32(s.Type) //nolint:gosec // magic numbers have 32 bits
	require.NotContains(t, networks, magic, "tests don't run over a network")
	networks[magic] = "NFS"
	return func() { delete(networks, magic) }
}

// On a network file system no database is made, and none is opened for writing; the error names the
// reason. An existing file can be read, and a copy of it can be written there.
func TestOpen_NetworkFileSystem_IsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "cache.db")
	restore := callNetwork(t, dir)
	err := Create(path, "test", nil, Options{})
	require.ErrorIs(t, err, store.ErrNetworkFS)
	require.ErrorContains(t, err, "(NFS)")
	require.NoDirExists(t, filepath.Dir(path))

	restore()
	require.NoError(t, Create(path, "test", nil, Options{}))
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	restore = callNetwork(t, dir)
	defer restore()
	_, err = Open(path, Options{})
	require.ErrorIs(t, err, store.ErrNetworkFS)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	f, err := Open(path, Options{ReadOnly: true})
	require.NoError(t, err)
	defer f.Close()
	to, err := f.OpenScratch(filepath.Join(dir, "copy"))
	require.NoError(t, err)
	require.NoError(t, to.Close())
}

func TestNetworkFS(t *testing.T) {
	name, err := networkFS(t.TempDir())
	require.NoError(t, err)
	require.Empty(t, name, "tests don't run over a network")
	_, err = networkFS(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// If the kind of the file system can't be found out, no database is made.
func TestCreate_UnknownFileSystem_IsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	err := Create(filepath.Join(file, "cache.db"), "test", nil, Options{})
	require.ErrorIs(t, err, syscall.ENOTDIR)
	require.ErrorContains(t, err, "file system of")
}
