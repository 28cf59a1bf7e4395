package boltfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
