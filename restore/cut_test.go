package restore_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// filled makes a database of 30 objects and returns the path of a copy as a killed process leaves
// it.
func filled(t *testing.T) string { return filledWith(t, 30) }

func filledWith(t *testing.T, objects int) string {
	dir := t.TempDir()
	live, path := filepath.Join(dir, "live.db"), filepath.Join(dir, "cache.db")
	db := openDB(t, live, bolt.Options{FlushInterval: time.Hour})
	c, err := db.Open(storetest.Info("pods"), store.LabelIndex("app", "app"))
	require.NoError(t, err)
	r, err := c.Replace()
	require.NoError(t, err)
	var changes []store.Change
	for i := range objects {
		changes = append(changes, storetest.Put(storetest.Object("ns", fmt.Sprint(i), "u", fmt.Sprint(i+1), map[string]string{"app": "a"}, "x")))
	}
	require.NoError(t, r.Apply(changes))
	require.NoError(t, r.Commit(storetest.Checkpoint(objects+1)))
	raw := read(t, live)
	require.NoError(t, db.Close())
	require.Equal(t, bolt.Clean, bolt.LastShutdown(live))
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	return path
}

// cut changes a file and marks it as written before the last start of the machine.
func cut(t *testing.T, path string, change func(gen *bbolt.Bucket) error) {
	db := openRaw(t, path)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		last := append(binary.BigEndian.AppendUint64(nil, uint64(tx.ID())), 0)
		if err := tx.Bucket([]byte("meta")).Put([]byte("last"), append(last, "another boot"...)); err != nil {
			return err
		}
		return change(tx.Bucket([]byte("c")).Bucket([]byte("pods")).Bucket([]byte("g1")))
	}))
	require.NoError(t, db.Close())
}

func TestOpenAfterKill(t *testing.T) {
	path := filled(t)
	require.Equal(t, bolt.Crashed, bolt.LastShutdown(path))
	db, verdict, err := restore.Open(t.Context(), path, bolt.Options{}, restore.Sources{}, now, func(string, int64) { t.Error("no record should be checked") })
	require.NoError(t, err)
	require.Equal(t, restore.File{Path: path, Outcome: restore.Opened, Ending: bolt.Crashed}, verdict)
	require.NoError(t, db.Close())
	db, verdict = open(t, path, bolt.Options{}, restore.Sources{})
	require.Equal(t, bolt.Clean, verdict.Ending)
	require.NoError(t, db.Close())
}

// A branch of the tree of pages that leads to itself would use up the memory of the process, also
// of each one after it.
func TestOpenAfterKill_LoopOfPages_SetAside(t *testing.T) {
	path := filledWith(t, 2000)
	raw := read(t, path)
	const pageSize, idBytes, isBranch = 4096, 8, 1
	loops := 0
	for page := 2 * pageSize; page < len(raw); page += pageSize {
		if binary.NativeEndian.Uint16(raw[page+8:]) != isBranch {
			continue
		}
		child := pageSize * int(binary.NativeEndian.Uint64(raw[page+16+8:]))
		copy(raw[child+idBytes:child+pageSize], raw[page+idBytes:page+pageSize])
		loops++
	}
	require.NotZero(t, loops)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	require.Equal(t, bolt.Crashed, bolt.LastShutdown(path))
	db, verdict := open(t, path, bolt.Options{}, restore.Sources{})
	require.Equal(t, restore.Quarantined, verdict.Outcome)
	require.ErrorContains(t, verdict.Cause, "in use in two places")
	require.NoError(t, db.Close())
}

// After a power cut everything is checked. Single corrupt records stay, because they are never
// served. With any other problem the file can't be trusted.
func TestOpenAfterPowerCut(t *testing.T) {
	key := []byte("ns/7")
	for _, tc := range []struct {
		name    string
		change  func(gen *bbolt.Bucket) error
		outcome restore.Outcome
		text    string
	}{
		{"sound", func(*bbolt.Bucket) error { return nil }, restore.Opened, "opened after a power cut: 30 records are intact"},
		{"a corrupt record", func(gen *bbolt.Bucket) error {
			b := gen.Bucket([]byte("objects"))
			raw := append([]byte{}, b.Get(key)...)
			raw[len(raw)-1] ^= 1
			return b.Put(key, raw)
		}, restore.Opened, "opened after a power cut: 1 of 30 records are corrupt"},
		{"a record lost", func(gen *bbolt.Bucket) error { return gen.Bucket([]byte("objects")).Delete(key) }, restore.Quarantined, "corrupt"},
		{"an index entry lost", func(gen *bbolt.Bucket) error {
			return gen.Bucket([]byte("index")).Bucket([]byte("app")).Delete([]byte("a\x00ns/7"))
		}, restore.Quarantined, `index app does not have it under "a"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filled(t)
			cut(t, path, tc.change)
			require.Equal(t, bolt.PowerLoss, bolt.LastShutdown(path))
			counted := map[string]int64{}
			db, verdict, err := restore.Open(t.Context(), path, bolt.Options{}, restore.Sources{}, now, func(id string, n int64) { counted[id] = n })
			require.NoError(t, err)
			defer db.Close()
			require.Equal(t, tc.outcome, verdict.Outcome)
			require.Contains(t, verdict.String(), tc.text)
			require.Contains(t, counted, "pods")
		})
	}
}

// A disk that lost the newest writes leaves old data under a new meta page.
func TestOpenAfterLostWrites(t *testing.T) {
	path := filled(t)
	db := openRaw(t, path)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("writer"), []byte("x")) }))
	require.NoError(t, db.Close())
	require.Equal(t, bolt.PowerLoss, bolt.LastShutdown(path), "the newest transaction is not snapcache's")
	db2, verdict := open(t, path, bolt.Options{}, restore.Sources{})
	defer db2.Close()
	require.Equal(t, restore.Quarantined, verdict.Outcome)
	require.ErrorContains(t, verdict.Cause, "writes were lost")
}
