package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// A spool returns what was added, whether it stayed in memory, went to a file, or moved from a full
// file to another one.
func TestSpoolRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SampledFrom([]int{0, 1, 100, 5_000, bufferBytes - 2, bufferBytes + 3, 300_000})
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []byte {
			b := make([]byte, sizes.Draw(t, "size"))
			// Half compressible, half not.
			seed := rapid.Uint32().Draw(t, "seed")
			for i := range b {
				seed = seed*1664525 + 1013904223
				if seed&1 == 0 || i%7 < 3 {
					b[i] = byte(seed >> 24)
				}
			}
			return b
		}), 0, 40).Draw(t, "entries")
		s := newSink(rapid.IntRange(0, 300_000).Draw(t, "limit"),
			func() (*os.File, error) { return nil, errors.New("read-only file system") },
			roomFor(rapid.Int64Range(0, 300_000).Draw(t, "room")),
			unlinkedIn(os.TempDir()),
		)
		sp := on(s)
		defer sp.Close()
		// Every second entry has a record, "stored" as JSON with a byte before it.
		decode := func(key string, stored, buf []byte) ([]byte, error) {
			if key == "bad" {
				return nil, &store.CorruptionError{Key: key}
			}
			return append(buf[:0], stored[1:]...), nil
		}
		records := make([]store.Record, len(entries))
		for i, e := range entries {
			rec := store.Record{}
			if i%2 == 0 {
				rec = store.Record{Header: store.Header{Key: "k"}, Stored: append([]byte{'x'}, e...), Decode: decode}
			}
			records[i] = rec
		}
		fill := func() {
			for i, rec := range records {
				if err := sp.Add(entries[i], rec); err != nil {
					panic(err)
				}
			}
			sp.Finish(sp.Add(nil, store.Record{Header: store.Header{Key: "bad"}, Stored: []byte("x"), Decode: decode}))
		}
		if rapid.Bool().Draw(t, "beside the reader") {
			go fill()
		} else {
			fill()
		}
		n := 0
		var corrupt error
		require.NoError(t, sp.Each(context.Background(), func(head, object []byte, err error) error {
			if err != nil {
				corrupt = err
				return nil
			}
			require.True(t, bytes.Equal(entries[n], head))
			if n%2 == 0 {
				require.True(t, bytes.Equal(entries[n], object))
			} else {
				require.Nil(t, object)
			}
			n++
			return nil
		}))
		require.Equal(t, len(entries), n)
		require.ErrorAs(t, corrupt, new(*store.CorruptionError))
	})
}

// Records of the memory store are objects. An entry without a record takes none of them.
func TestSpool_ObjectsInMemory(t *testing.T) {
	sp := on(newSink(1 << 20))
	defer sp.Close()
	var want []string
	for i := range 5 {
		rec, json := store.Record{}, ""
		if i%2 == 1 {
			o := storetest.Object("ns", fmt.Sprint(i), "u", "1", nil, "x")
			rec, json = store.Record{Header: store.Header{Key: o.Key()}, Object: o}, string(o.Raw())
		}
		require.NoError(t, sp.Add(nil, rec))
		want = append(want, json)
	}
	sp.Finish(nil)
	var got []string
	require.NoError(t, sp.Each(context.Background(), func(_, object []byte, _ error) error {
		got = append(got, string(object))
		return nil
	}))
	require.Equal(t, want, got)
}

// roomFor creates files that accept size bytes and fail then, as on a full disk.
func roomFor(size int64) func() (*os.File, error) {
	return func() (*os.File, error) {
		fd, err := unix.MemfdCreate("full", unix.MFD_ALLOW_SEALING)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), "full")
		if err := f.Truncate(size); err != nil {
			return nil, err
		}
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW)
		return f, err
	}
}

func TestSpoolDiskFull(t *testing.T) {
	s := newSink(10, unlinkedIn("/nonexistent"), func() (*os.File, error) { return os.OpenFile("/dev/full", os.O_RDWR, 0) })
	_, err := s.Write(make([]byte, 100))
	require.ErrorContains(t, err, "no such file")
	require.ErrorContains(t, err, "no space left")
}

func TestSpoolEachErrors(t *testing.T) {
	sp := New("")
	defer sp.Close()
	for range 3 {
		require.NoError(t, sp.Add([]byte("x"), store.Record{}))
	}
	sp.Finish(nil)
	enough := errors.New("enough")
	require.ErrorIs(t, sp.Each(context.Background(), func(_, _ []byte, _ error) error { return enough }), enough)

	sp = New("")
	defer sp.Close()
	require.NoError(t, sp.Add([]byte("x"), store.Record{}))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, sp.Each(ctx, nil), context.Canceled)

	// The producer's error comes after the entries that it added.
	sp = New("")
	defer sp.Close()
	require.NoError(t, sp.Add([]byte("x"), store.Record{}))
	sp.Finish(enough)
	read := 0
	require.ErrorIs(t, sp.Each(context.Background(), func(_, _ []byte, _ error) error { read++; return nil }), enough)
	require.Equal(t, 1, read)
}

// Files have no name, so nothing is left after any end of the process.
func TestSpoolFilesAreUnlinked(t *testing.T) {
	dir := t.TempDir()
	s := newSink(0, unlinkedIn(dir))
	sp := on(s)
	defer sp.Close()
	require.NoError(t, sp.Add(make([]byte, 300_000), store.Record{}))
	require.NotNil(t, s.file)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// The content of a file on disk is encrypted.
func TestSpoolFilesAreEncrypted(t *testing.T) {
	marker := []byte("a marker that is nowhere in the file, and much longer than what one finds by chance")
	s := newSink(0, unlinkedIn(t.TempDir()))
	// Without compression, which would hide the marker in any case.
	for range 3 {
		n, err := s.Write(marker)
		require.NoError(t, err)
		require.Equal(t, len(marker), n)
	}
	defer s.file.Close()
	raw, err := io.ReadAll(io.NewSectionReader(s.file, 0, s.written))
	require.NoError(t, err)
	require.Len(t, raw, 3*len(marker))
	require.NotContains(t, string(raw), string(marker[:8]))
	s.finish(nil)
	got, err := io.ReadAll(s.reader())
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat(marker, 3), got)

	// Another spool has another key.
	other := newSink(0, unlinkedIn(t.TempDir()))
	_, err = other.Write(marker)
	require.NoError(t, err)
	defer other.file.Close()
	again, err := io.ReadAll(io.NewSectionReader(other.file, 0, other.written))
	require.NoError(t, err)
	require.NotEqual(t, raw[:len(marker)], again)
}
