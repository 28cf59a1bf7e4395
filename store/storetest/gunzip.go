package storetest

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Gunzip decompresses a database of testdata into a temporary directory and returns its path.
func Gunzip(t testing.TB, file string) string {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = f.Close() }() // only read from
	r, err := gzip.NewReader(f)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "cache.db")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = io.Copy(out, r) //nolint:gosec // of the repository
	require.NoError(t, errors.Join(err, out.Close()))
	return path
}
