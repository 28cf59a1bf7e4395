package bolt_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// keysOf makes keys of their numbers, 0 for none.
func keysOf(current byte, old ...byte) (keys bolt.Keyring) {
	if current != 0 {
		keys.Primary = newKey(current)
	}
	for _, n := range old {
		keys.Previous = append(keys.Previous, newKey(n))
	}
	return keys
}

// TestRekey takes one database through all changes of its key: none, one, another one, none. Each
// time it is rewritten in the background, beside a writer, and has the same content afterwards,
// under the new key alone.
func TestRekey(t *testing.T) {
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "cache.db")
	info := storetest.Info("pods")
	indexes := []store.Index{store.LabelIndex("app", "app")}
	model := storetest.NewModel(info, indexes...)
	m := &marked{random: rand.New(rand.NewPCG(2, 2))}
	rv := 10_000
	for i, keys := range []bolt.Keyring{keysOf(0), keysOf(1), keysOf(2, 1), keysOf(2), keysOf(0, 2), keysOf(3)} {
		db := openDB(t, path, bolt.Options{FlushInterval: time.Hour, Keys: keys, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		was := db.Stats()
		require.Equal(t, i != 0 && i != 3, was.EncryptionDue, "from %q in step %d", was.EncryptionKey, i)
		c := openCollection(t, db, info, indexes...)
		if i == 0 {
			var all []store.Change
			for range 300 {
				all = append(all, storetest.Put(m.object(m.name(), m.name())))
			}
			replaceAll(t, c, all, rv)
			model.Replace(info, all, storetest.Checkpoint(rv))
		}
		// Until it is rewritten, and at least a few times, write and delete objects.
		for n := 0; n < 5 || db.Stats().EncryptionDue && n < 100_000; n++ {
			rv++
			b := store.Batch{Changes: []store.Change{storetest.Put(m.object("churn", fmt.Sprintf("o-%d", n%7)))}, Checkpoint: storetest.Checkpoint(rv)}
			require.NoError(t, c.Apply(b))
			model.Apply(b)
			if n%3 == 0 {
				require.NoError(t, db.Flush())
			}
		}
		db.WaitForBackground()
		now := db.Stats()
		require.False(t, now.EncryptionDue)
		if keys.Primary != nil {
			require.Equal(t, keys.Primary.ID(), now.EncryptionKey)
		} else {
			require.Empty(t, now.EncryptionKey)
		}
		require.Equal(t, was.EncryptionDue, now.Compactions > 0)
		sameAs(t, db, model)
		require.NoError(t, db.Close())

		report, err := bolt.Check(path, bolt.Keyring{Primary: keys.Primary}, nil) // without the previous keys
		require.NoError(t, err)
		require.Empty(t, report.Problems)
		if keys.Primary != nil {
			_, err = bolt.Check(path, bolt.Keyring{Previous: keys.Previous}, nil)
			require.ErrorIs(t, err, store.ErrKey)
			require.Empty(t, m.found(readFile(t, path)))
		} else {
			require.NotEmpty(t, m.found(readFile(t, path)))
		}
	}
	require.Contains(t, log.String(), "rewritten")
	require.Empty(t, m.found(log.Bytes()))
}

// A kill at any step leaves a complete file, with one key or with the other, and the next start
// goes on.
func TestRekeyKilled(t *testing.T) {
	for _, tc := range []struct {
		name     string
		from, to bolt.Keyring
	}{
		{"encrypted", keysOf(0), keysOf(1)}, {"rotated", keysOf(1), keysOf(2, 1)}, {"decrypted", keysOf(2), keysOf(0, 2)},
	} {
		for _, step := range []string{"begun", "copied", "synced", "renamed"} {
			t.Run(tc.name+", "+step, func(t *testing.T) {
				path := sampleFileUnder(t, tc.from)
				whole := contentOf(t, path, tc.from)
				b := breakCompaction(t, step)
				b.path = path
				opts := bolt.Options{Keys: tc.to, HistoryRetention: storetest.HistoryRetention}
				db := openByHand(t, path, atSteps(opts, func(step string) { b.at(t, step) }))
				b.run(t, db)
				require.NoError(t, db.Close())
				require.Equal(t, whole, contentOf(t, path, tc.to), "an error")
				require.Equal(t, whole, contentOf(t, b.killed, tc.to), "a kill")

				db = openByHand(t, b.killed, opts)
				require.NoFileExists(t, b.killed+".compact")
				require.Equal(t, step != "renamed", db.Stats().EncryptionDue)
				_, _, err := db.Compact(context.Background())
				require.NoError(t, err)
				require.False(t, db.Stats().EncryptionDue)
				require.NoError(t, db.Close())
				require.Equal(t, whole, contentOf(t, b.killed, bolt.Keyring{Primary: tc.to.Primary}))
			})
		}
	}
}

// Without an agent, Compact rewrites a file under another key, even if that saves no space.
func TestRekeyOffline(t *testing.T) {
	path := sampleFile(t)
	whole := contentOf(t, path, bolt.Keyring{})
	for i, keys := range []bolt.Keyring{keysOf(0), keysOf(1), keysOf(1), keysOf(2, 1), keysOf(0, 2)} {
		_, _, err := bolt.Compact(path, bolt.Options{Keys: keys})
		require.NoError(t, err, i)
		only := bolt.Keyring{Primary: keys.Primary}
		require.Equal(t, whole, contentOf(t, path, only), i)
		report, err := bolt.Check(path, only, nil)
		require.NoError(t, err, i)
		require.Empty(t, report.Problems, i)
		if keys.Primary != nil {
			require.Equal(t, keys.Primary.ID(), report.Key, i)
		}
	}
}

// If a rewrite fails it is retried, logged once, and nothing else is affected.
func TestRekey_DiskFull_IsRetried(t *testing.T) {
	path := sampleFile(t)
	log := make(lines, 100)
	db := openDB(t, path, bolt.Options{Keys: keysOf(1), Logger: slog.New(slog.NewTextHandler(log, nil))})
	_, restore := overflow(t, path)
	c := openCollection(t, db, storetest.Info("pods"), append(lifeIndexes(), mine)...)
	require.Contains(t, <-log, "not enough free disk")
	require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{storetest.Put(sampleObject(3, 300))}, Checkpoint: storetest.Checkpoint(300)}))
	require.True(t, db.Stats().EncryptionDue)
	require.Empty(t, db.Stats().EncryptionKey)
	restore()
	require.NoError(t, db.Close(), "Close during the wait for the next try")
	require.Empty(t, log)
	report := checkReport(t, path, bolt.Keyring{})
	require.Empty(t, report.Problems)
}

// lines collects the lines of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
