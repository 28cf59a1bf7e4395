package snapshot_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// zeros is a reader of n zero bytes, which compress by 10,000.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// crafted writes a snapshot of bytes that are no database to a file.
func crafted(t *testing.T, database io.Reader, claims func(m *snapshot.Manifest)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crafted.snap")
	require.NoError(t, os.WriteFile(path, snapshot.Craft(t, database, claims), 0o600))
	return path
}

// A manifest with a right checksum is refused if no database can be as it claims.
func TestManifestClaims(t *testing.T) {
	pods := func(change func(c *snapshot.Collection)) func(*snapshot.Manifest) {
		return func(m *snapshot.Manifest) { change(&m.Collections[0]) }
	}
	for _, tc := range []struct {
		name   string
		claims func(m *snapshot.Manifest)
		text   string
	}{
		{"nothing odd", func(*snapshot.Manifest) {}, ""},
		{"of the future", func(m *snapshot.Manifest) { m.Created = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }, ""}, // a clock may be wrong
		{"negative length", func(m *snapshot.Manifest) { m.Database.Bytes = -1 }, "-1 bytes"},
		{"no format", func(m *snapshot.Manifest) { m.Database.Format = 0 }, "format 0"},
		{"no checksum", func(m *snapshot.Manifest) { m.Database.SHA256 = "../x" }, "checksum of the database is none"},
		{"a writer that moves the cursor", func(m *snapshot.Manifest) { m.Writer = "x\x1b[2J" }, "can't be printed"},
		{"negative count", pods(func(c *snapshot.Collection) { c.Objects = -5 }), "pods has -5 objects"},
		{"huge count", pods(func(c *snapshot.Collection) { c.Objects = math.MaxInt64 }), "objects in a database of"},
		{"negative bytes", pods(func(c *snapshot.Collection) { c.Bytes = -1 }), "pods has -1 bytes"},
		{"huge bytes", pods(func(c *snapshot.Collection) { c.Bytes = math.MaxInt64 }), "pods has 9223372036854775807 bytes"},
		{"a cluster of two lines", pods(func(c *snapshot.Collection) { c.Cluster = "uid:1\nuid:2" }), "can't be printed"},
		{"a name that turns the line around", pods(func(c *snapshot.Collection) { c.ID = "pods\u202e" }), "can't be printed"},
		{"no name", pods(func(c *snapshot.Collection) { c.ID = "" }), `the collection ""`},
		{"a collection twice", func(m *snapshot.Manifest) { m.Collections = append(m.Collections, m.Collections[0]) }, "comes after"},
		{"too many collections", func(m *snapshot.Manifest) { m.Collections = make([]snapshot.Collection, 10_001) }, "more than 10000 collections"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := crafted(t, zeros(4096), tc.claims)
			_, _, err := snapshot.ReadManifest(path)
			_, unpackErr := snapshot.Unpack(t.Context(), path, io.Discard, nil)
			list, listErr := snapshot.Dir{Path: filepath.Dir(path)}.List()
			require.NoError(t, listErr)
			if tc.text == "" {
				require.NoError(t, err)
				require.NoError(t, unpackErr)
				require.NoError(t, list[0].Err)
				return
			}
			for _, err := range []error{err, unpackErr, list[0].Err} {
				require.ErrorAs(t, err, new(*store.CorruptionError))
				require.ErrorContains(t, err, path+" is corrupt: its manifest: ")
				require.ErrorContains(t, err, tc.text)
			}
			require.Nil(t, list[0].Manifest)
		})
	}
}

// A manifest of millions of empty collections takes no more memory than its own bytes, some times over.
func TestManifestMemory(t *testing.T) {
	const want = 160 << 20
	raw := []byte(`{"database":{"format":1,"bytes":4096},"collections":[{}` + strings.Repeat(",{}", (16<<20-100)/3) + `]}`)
	b := append([]byte("\x89snapc\r\n"), 0, 0, 0, 1)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(raw))), raw...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	path := filepath.Join(t.TempDir(), "x.snap")
	require.NoError(t, os.WriteFile(path, append(b, make([]byte, 32)...), 0o600))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := snapshot.ReadManifest(path)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "more than 10000 collections")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(want))
}

// What a manifest claims is compared with the snapshot's own length, the quota and the free disk before
// anything is written.
func TestUnpackFile_ClaimOverRoom_WritesNothing(t *testing.T) {
	const large = 256 << 20
	bomb := crafted(t, zeros(large), func(*snapshot.Manifest) {})
	honest := crafted(t, zeros(1<<20), func(*snapshot.Manifest) {})
	huge := crafted(t, zeros(4096), func(m *snapshot.Manifest) { m.Database.Bytes = 1 << 48 })
	require.NoError(t, os.Truncate(huge, 1<<43)) // a sparse file
	for _, tc := range []struct {
		name, path string
		maxBytes   int64
		is         error
		text       string
	}{
		{"a bomb", bomb, 0, nil, "its manifest claims a database of 268435456 bytes, which no snapshot of "},
		{"over the quota", honest, 1 << 19, snapshot.ErrQuota, "its database has 1048576 bytes, store.maxSize is 524288"},
		{"over the disk", huge, 0, bolt.ErrNoRoom, "unpack snapshot " + huge + ": not enough free disk"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			_, err := snapshot.UnpackFile(t.Context(), tc.path, out, tc.maxBytes, nil)
			require.ErrorContains(t, err, tc.text)
			require.ErrorContains(t, err, tc.path)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			}
			require.NoFileExists(t, out)
			if tc.maxBytes == 0 {
				_, _, err = snapshot.Open(t.Context(), tc.path, bolt.Keyring{}, nil)
				require.ErrorContains(t, err, tc.text)
				require.NotContains(t, err.Error(), ".unpacked-")
			}
		})
	}
	_, err := snapshot.UnpackFile(t.Context(), honest, filepath.Join(t.TempDir(), "out"), 1<<20, nil)
	require.NoError(t, err)
}

// Errors name the snapshot, not the file that it was unpacked to.
func TestErrorsNameTheSnapshot(t *testing.T) {
	path := crafted(t, bytes.NewReader(bytes.Repeat([]byte("no database "), 1000)), func(*snapshot.Manifest) {})
	_, _, err := snapshot.Open(t.Context(), path, bolt.Keyring{}, nil)
	require.ErrorIs(t, err, store.ErrForeign)
	require.ErrorContains(t, err, path)
	require.NotContains(t, err.Error(), ".unpacked-")
	_, _, err = snapshot.Check(t.Context(), path, bolt.Keyring{}, nil)
	require.ErrorIs(t, err, store.ErrForeign)
	require.ErrorContains(t, err, path)
	require.NotContains(t, err.Error(), ".unpacked-")
}

// The check of the database in a snapshot ends with its context.
func TestCheckIsCancelled(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	path := s.create(t, now).Path
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err := snapshot.Check(ctx, path, bolt.Keyring{}, func(_ snapshot.Step, done, total int64) {
		if done == total {
			cancel() // all is read, and the check begins
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	requireOnly(t, s.snapshots(), filepath.Base(path))
}
