package files

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stale leaves a socket that no process listens on, as a killed process does.
func stale(t *testing.T, path string) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "sock")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(shortDir(t), "run", "s.sock")
	l, err := ListenUnix(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	dir, err := os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), dir.Mode().Perm())

	_, err = ListenUnix(path)
	require.ErrorIs(t, err, ErrSocketTaken)
	require.ErrorContains(t, err, "another agent answers on "+path)

	require.NoError(t, l.Close())
	_, err = os.Lstat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestListenUnixReplacesStaleSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "s.sock")
	stale(t, path)
	l, err := ListenUnix(path)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestListenUnixNeverRemovesFiles(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "cache.db")
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(path, link))
	for _, p := range []string{path, link, dir} {
		_, err := ListenUnix(p)
		require.ErrorContains(t, err, "the file there is not a socket")
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(content))
}

func TestListenUnixBadPath(t *testing.T) {
	dir := shortDir(t)
	long := filepath.Join(dir, strings.Repeat("x", 120))
	_, err := ListenUnix(long)
	require.ErrorContains(t, err, long)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = ListenUnix(filepath.Join(file, "s.sock"))
	require.ErrorContains(t, err, "create its directory")
}
