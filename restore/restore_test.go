package restore_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func TestOpenCreatesThenOpens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "cache.db")
	db, verdict := open(t, path, bolt.Options{}, restore.Sources{})
	require.Equal(t, restore.Created, verdict.Outcome)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	dir, err := os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), dir.Mode().Perm())

	_, _, err = restore.Open(t.Context(), path, bolt.Options{}, restore.Sources{}, now, nil)
	require.ErrorIs(t, err, store.ErrLocked, "a file in use is not set aside")
	require.NoError(t, db.Close())

	db, verdict = open(t, path, bolt.Options{}, restore.Sources{})
	require.Equal(t, restore.Opened, verdict.Outcome)
	require.NoError(t, db.Close())
}

func TestOpenSetsAside(t *testing.T) {
	for _, tc := range []struct {
		name   string
		make   func(t *testing.T, path string)
		reason string
	}{
		{"garbage", func(t *testing.T, path string) { write(t, path, make([]byte, 50_000)) }, "foreign"},
		{"text", func(t *testing.T, path string) { write(t, path, []byte("hello")) }, "foreign"},
		{"empty", func(t *testing.T, path string) { write(t, path, nil) }, "foreign"},
		{"other program", func(t *testing.T, path string) { put(t, path, "other", "k", "v") }, "foreign"},
		{"newer format", func(t *testing.T, path string) { put(t, path, "meta", "format", "\x00\x00\x00\x63") }, "newer-format"},
		{"old format", func(t *testing.T, path string) { put(t, path, "meta", "format", "\x00\x00\x00\x02") }, "old-format"},
		{"no version", func(t *testing.T, path string) { put(t, path, "meta", "format", "") }, "corrupt"},
		{"cut", func(t *testing.T, path string) {
			create(t, path)
			require.NoError(t, os.Truncate(path, 4096))
		}, "corrupt"},
		{"truncated after the header", func(t *testing.T, path string) {
			create(t, path)
			require.NoError(t, os.Truncate(path, 3*4096))
		}, "corrupt"},
		{"noise in a collection", func(t *testing.T, path string) {
			create(t, path)
			put(t, path, "c/pods", "info", "{}")
			put(t, path, "c/pods", "state", "noise")
		}, "corrupt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "cache.db")
			tc.make(t, path)
			before := read(t, path)

			db, verdict := open(t, path, bolt.Options{}, restore.Sources{})
			defer db.Close()
			require.Equal(t, restore.Quarantined, verdict.Outcome)
			require.Equal(t, tc.reason, verdict.Reason)
			require.Equal(t, path+"."+tc.reason+"-20260304T050607Z", verdict.MovedTo)
			after := read(t, verdict.MovedTo)
			require.Equal(t, before, after, "the renamed file has the same content")
			infos, err := db.Collections()
			require.NoError(t, err)
			require.Empty(t, infos)
		})
	}
}

// TestOpenPreviousVersion opens files that the version before wrote on another machine. See
// TestPreviousVersion of package bolt.
func TestOpenPreviousVersion(t *testing.T) {
	for _, file := range []struct {
		name    string
		ending  bolt.Shutdown
		checked int64
	}{
		{"previous-clean.db.gz", bolt.Clean, 0},
		{"previous-open.db.gz", bolt.PowerLoss, 120 + 12},
	} {
		t.Run(file.name, func(t *testing.T) {
			path := storetest.Gunzip(t, "../store/bolt/testdata/"+file.name)
			db, verdict := open(t, path, bolt.Options{}, restore.Sources{})
			require.Equal(t, restore.Opened, verdict.Outcome)
			require.Equal(t, file.ending, verdict.Ending)
			require.Equal(t, file.checked, verdict.Checked)
			require.Zero(t, verdict.Corrupt)
			require.NoError(t, db.Close())
		})
	}
}

// If the path is not a file, the configuration is wrong, and no file is moved.
func TestOpenDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(path, 0o700))
	_, _, err := restore.Open(t.Context(), path, bolt.Options{}, restore.Sources{}, now, nil)
	require.ErrorContains(t, err, "not a regular file")
	require.DirExists(t, path)
}

func TestSetAsideTwiceInASecond(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	var moved []string
	for range 2 {
		write(t, path, []byte("garbage"))
		db, verdict := open(t, path, bolt.Options{}, restore.Sources{})
		require.NoError(t, db.Close())
		moved = append(moved, verdict.MovedTo)
	}
	require.NotEqual(t, moved[0], moved[1])
}

// open opens a database, which the test closes, and returns how it was repaired.
func open(t *testing.T, path string, opts bolt.Options, from restore.Sources) (*bolt.DB, restore.File) {
	t.Helper()
	db, verdict, err := restore.Open(t.Context(), path, opts, from, now, nil)
	require.NoError(t, err)
	return db, verdict
}

// openDB opens a database, which the test closes.
func openDB(t *testing.T, path string, opts bolt.Options) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(path, opts)
	require.NoError(t, err)
	return db
}

// openRaw opens the file of a database, which the test closes.
func openRaw(t *testing.T, path string) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	return db
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

func write(t *testing.T, path string, b []byte) {
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

func create(t *testing.T, path string) {
	db := openDB(t, path, bolt.Options{})
	require.NoError(t, db.Close())
}

// put makes a database (for bucket "meta" one of snapcache) and changes one value.
func put(t *testing.T, path, bucket, key, value string) {
	if bucket == "meta" {
		create(t, path)
	}
	names := strings.Split(bucket, "/")
	db := openRaw(t, path)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(names[0]))
		if err == nil && len(names) > 1 {
			b, err = b.CreateBucketIfNotExists([]byte(names[1]))
		}
		if err != nil {
			return err
		}
		return b.Put([]byte(key), []byte(value))
	}))
	require.NoError(t, db.Close())
}

// If the key of a file is missing, the file is good: it is not set aside, and no snapshot takes its
// place. The agent does not start.
func TestOpenMissingKeyMovesNothing(t *testing.T) {
	key := func(n byte) *bolt.EncryptionKey {
		k, err := bolt.ParseKey([]byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32))))
		require.NoError(t, err)
		return k
	}
	for _, tc := range []struct {
		name   string
		killed bool
	}{{"closed", false}, {"after a power cut", true}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "cache.db")
			db := openDB(t, path, bolt.Options{Keys: bolt.Keyring{Primary: key(1)}})
			_, err := db.Open(store.Info{ID: "pods"})
			require.NoError(t, err)
			require.NoError(t, db.Close())
			if tc.killed {
				raw := openRaw(t, path)
				require.NoError(t, raw.Update(func(*bbolt.Tx) error { return nil })) // not snapcache's
				require.NoError(t, raw.Close())
				require.Equal(t, bolt.PowerLoss, bolt.LastShutdown(path))
			}
			before := read(t, path)
			for _, keys := range []bolt.Keyring{{}, {Primary: key(2), Previous: []*bolt.EncryptionKey{key(3)}}} {
				_, _, err = restore.Open(t.Context(), path, bolt.Options{Keys: keys}, restore.Sources{}, now, nil)
				require.ErrorIs(t, err, store.ErrKey)
			}
			after := read(t, path)
			require.Equal(t, before, after)
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, files, 1)
			if tc.killed {
				return
			}
			db, verdict := open(t, path, bolt.Options{Keys: bolt.Keyring{Primary: key(2), Previous: []*bolt.EncryptionKey{key(1)}}}, restore.Sources{})
			require.Equal(t, restore.Opened, verdict.Outcome)
			require.NoError(t, db.Close())
		})
	}
}
