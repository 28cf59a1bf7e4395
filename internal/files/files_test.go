package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(path+".tmp", []byte("left by a crash"), 0o644))
	for _, content := range []string{"first", "second"} {
		require.NoError(t, WriteAtomic(path, []byte(content)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(got))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	require.Equal(t, []string{"token"}, names(t, dir))

	taken := filepath.Join(dir, "dir")
	require.NoError(t, os.MkdirAll(filepath.Join(taken, "sub"), 0o700))
	require.Error(t, WriteAtomic(taken, []byte("content")))
	require.Equal(t, []string{"dir", "token"}, names(t, dir))
}

func TestCreate_Fails_LeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	failure := errors.New("no space")
	err := Create(filepath.Join(dir, "f"), func(f *os.File) error {
		_, err := f.WriteString("half of it")
		require.NoError(t, err)
		return failure
	})
	require.ErrorIs(t, err, failure)
	require.Empty(t, names(t, dir))
}

func TestSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cert")
	seen := Seen{}
	require.False(t, seen.Unchanged(), "nothing was read")
	_, err := seen.Read(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.False(t, seen.Unchanged())
	require.NoError(t, WriteAtomic(path, []byte("a")))
	got, err := seen.Read(path)
	require.NoError(t, err)
	require.Equal(t, "a", string(got))
	require.True(t, seen.Unchanged())
	require.NoError(t, WriteAtomic(path, []byte("b")))
	require.False(t, seen.Unchanged(), "another file, of the same size")
}

func names(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
