package snapshot

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store/bolt"
)

// TestReader_KeepsError checks that a reader keeps an error of the disk, but not the end of the file,
// which a decoder may hide in an error of its own.
func TestReader_KeepsError(t *testing.T) {
	broken := errors.New("input/output error")
	for _, test := range []struct {
		name string
		err  error
		kept error
	}{
		{"an error of the disk", broken, broken},
		{"the end", io.EOF, nil},
		{"the end too early", io.ErrUnexpectedEOF, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &progressReader{ctx: t.Context(), r: iotest.ErrReader(test.err)}
			_, err := r.Read(make([]byte, 1))
			require.Equal(t, test.err, err)
			require.Equal(t, test.kept, r.err)
		})
	}
}

// TestWrite_ReadError checks that a copy that can't be read makes neither a manifest nor a snapshot.
func TestWrite_ReadError(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "copy.db"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(4096))
	c := &bolt.Backup{File: f, Bytes: 4096}
	m, err := describe(t.Context(), c, "test", time.Time{})
	require.NoError(t, err)
	ignore := func(Step, int64, int64) {}
	require.NoError(t, write(t.Context(), io.Discard, m, c, ignore))

	require.NoError(t, f.Close())
	_, err = describe(t.Context(), c, "test", time.Time{})
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorIs(t, write(t.Context(), io.Discard, m, c, ignore), os.ErrClosed)
}
