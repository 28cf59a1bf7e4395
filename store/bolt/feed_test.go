package bolt_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// now returns a checkpoint that was validated just now.
func now(rv int) store.Checkpoint {
	return store.Checkpoint{RV: fmt.Sprint(rv), Cluster: "one", ListReason: "expired", LastEvent: time.Now()}
}

func horizonOf(t *testing.T, c store.Collection) store.Horizon {
	v, err := c.View()
	require.NoError(t, err)
	defer v.Close()
	h, err := v.Horizon()
	require.NoError(t, err)
	return h
}

// changesOf returns the changes after rv.
func changesOf(t *testing.T, c store.Collection, since string) ([]string, error) {
	v, err := c.View()
	require.NoError(t, err)
	defer v.Close()
	var lines []string
	for e, err := range v.Changes(since) {
		if err != nil {
			return lines, err
		}
		lines = append(lines, e.RV+" "+e.Key)
	}
	return lines, nil
}

func put(i, rv int) store.Change {
	return storetest.Put(storetest.Object("ns", fmt.Sprint(i), "u", fmt.Sprint(rv), nil, incompressible(rv)))
}

// A fold trims the entries that are older than the retention, from the oldest on, and moves the
// horizon.
func TestHistoryRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, path := newDB(t, bolt.Options{HistoryRetention: 3 * time.Hour})
		c := openCollection(t, db, storetest.Info("a"))
		replaceAll(t, c, []store.Change{put(0, 1)}, 10)
		for i := 1; i <= 240; i++ {
			time.Sleep(time.Minute)
			changes := []store.Change{put(i, 100+2*i)}
			if i > 1 {
				changes = append(changes, store.Change{Key: fmt.Sprintf("ns/%d", i-1), RV: fmt.Sprint(100 + 2*i + 1)})
			}
			require.NoError(t, c.Apply(store.Batch{Changes: changes, Checkpoint: now(100 + 2*i + 1)}))
		}
		time.Sleep(61 * time.Minute)
		require.NoError(t, c.Apply(store.Batch{Checkpoint: now(590)}))
		require.NoError(t, db.Flush())
		at := horizonOf(t, c)
		require.InDelta(t, 3*time.Hour, time.Since(at.Time), float64(2*time.Minute))
		lines, err := changesOf(t, c, at.RV)
		require.NoError(t, err)
		require.Len(t, lines, 121, "120 deletions and the newest object")
		_, err = changesOf(t, c, "150")
		require.ErrorAs(t, err, new(*store.TooOldError))
		require.NoError(t, db.Close())
		report := checkReport(t, path, bolt.Keyring{})
		require.Empty(t, report.Problems)
		require.Empty(t, report.Notes)
	})
}

// A database that is closed trims its histories: those that are too long however short it was open, as an
// agent that is restarted more often than trimInterval would never do it otherwise.
func TestHistoryTrimmedAtClose(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts bolt.Options
		open time.Duration
	}{{"retention", bolt.Options{HistoryRetention: time.Hour}, time.Hour}, {"bytes", bolt.Options{HistoryBytes: 1}, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "cache.db")
				reopen := func(opts bolt.Options) (*bolt.DB, store.Collection) {
					db := openDB(t, path, opts)
					c := openCollection(t, db, storetest.Info("a"))
					return db, c
				}
				db, c := reopen(bolt.Options{})
				first := now(10)
				first.ListReason = store.ReasonInitial
				r, err := c.Replace()
				require.NoError(t, err)
				require.NoError(t, r.Commit(first))
				require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{put(1, 100)}, Checkpoint: now(100)}))
				require.NoError(t, db.Close())
				time.Sleep(61 * time.Minute)

				db, c = reopen(tc.opts)
				require.Equal(t, "10", horizonOf(t, c).RV)
				require.True(t, horizonOf(t, c).First)
				time.Sleep(tc.open)
				require.NoError(t, db.Close())
				db, c = reopen(bolt.Options{})
				require.Equal(t, "100", horizonOf(t, c).RV)
				require.False(t, horizonOf(t, c).First, "a change is gone")
				require.NoError(t, db.Close())
				report := checkReport(t, path, bolt.Keyring{})
				require.Empty(t, report.Problems)
			})
		})
	}
}

// A history stays within its size, apart from the entries between two folds.
func TestHistoryBytes(t *testing.T) {
	const limit = 64 << 10
	synctest.Test(t, func(t *testing.T) {
		db, path := newDB(t, bolt.Options{HistoryBytes: limit})
		c := openCollection(t, db, storetest.Info("a"))
		replaceAll(t, c, nil, 10)
		rv := 100
		for range 10 {
			for range 20 {
				require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{put(rv, rv)}, Checkpoint: now(rv)}))
				require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{{Key: fmt.Sprintf("ns/%d", rv), RV: fmt.Sprint(rv + 1)}}, Checkpoint: now(rv + 1)}))
				rv += 2
			}
			time.Sleep(61 * time.Minute)
			require.NoError(t, db.Flush())
		}
		lines, err := changesOf(t, c, horizonOf(t, c).RV)
		require.NoError(t, err)
		require.NotEmpty(t, lines)
		require.NoError(t, db.Close())
		var head struct{ Entries, Bytes int }
		edit(t, path, func(tx *bbolt.Tx) error {
			raw, err := bolt.Unseal("a", []byte("history"), bucketAt(tx, "c/a/g1").Get([]byte("history")))
			return errors.Join(err, json.Unmarshal(raw, &head))
		})
		require.Equal(t, len(lines), head.Entries)
		require.LessOrEqual(t, head.Bytes, limit)
		require.Greater(t, head.Bytes, limit/2)
		report := checkReport(t, path, bolt.Keyring{})
		require.Empty(t, report.Problems)
	})
}

// If the head of a history is corrupt, reading changes returns an error, but the collection goes
// on: the history starts again.
func TestCorruptHistory(t *testing.T) {
	path := foldedSample(t)
	edit(t, path, func(tx *bbolt.Tx) error {
		b := bucketAt(tx, "c/pods/g1")
		raw := append([]byte{}, b.Get([]byte("history"))...)
		raw[len(raw)/2] ^= 4
		return b.Put([]byte("history"), raw)
	})
	report := checkReport(t, path, bolt.Keyring{})
	require.Equal(t, []bolt.Problem{{Collection: "pods", Reason: "history: checksum does not match"}}, report.Problems)
	db := openDB(t, path, bolt.Options{})
	defer db.Close()
	pods := openCollection(t, db, storetest.Info("pods"), append(lifeIndexes(), mine)...)
	_, err := changesOf(t, pods, "100")
	require.ErrorAs(t, err, new(*store.CorruptionError))
	require.EqualValues(t, 37, pods.State().Count)

	cp := storetest.Checkpoint(120)
	require.NoError(t, pods.Apply(store.Batch{Changes: []store.Change{storetest.Put(sampleObject(2, 119))}, Checkpoint: cp}))
	require.Equal(t, "120", horizonOf(t, pods).RV)
	cp = storetest.Checkpoint(122)
	require.NoError(t, pods.Apply(store.Batch{Changes: []store.Change{storetest.Put(sampleObject(2, 121))}, Checkpoint: cp}))
	lines, err := changesOf(t, pods, "120")
	require.NoError(t, err)
	require.Equal(t, []string{"121 shop/o-02"}, lines)
	require.NoError(t, db.Close())
	report = checkReport(t, path, bolt.Keyring{})
	require.Empty(t, report.Problems)
}

// If a corrupt record is written again, the history stays as it is; if it is deleted, the history
// starts behind the deletion.
func TestHistoryOfCorruptRecord(t *testing.T) {
	path := foldedSample(t)
	edit(t, path, func(tx *bbolt.Tx) error {
		b := bucketAt(tx, "c/pods/g1/objects")
		for _, key := range []string{"shop/o-02", "shop/o-04"} { // changed at 101, unchanged
			raw := append([]byte{}, b.Get([]byte(key))...)
			raw[len(raw)-1] ^= 4
			if err := b.Put([]byte(key), raw); err != nil {
				return err
			}
		}
		return nil
	})
	db := openDB(t, path, bolt.Options{HistoryRetention: storetest.HistoryRetention})
	defer db.Close()
	pods := openCollection(t, db, storetest.Info("pods"), append(lifeIndexes(), mine)...)
	require.NoError(t, pods.Apply(store.Batch{Changes: []store.Change{storetest.Put(sampleObject(2, 101)), storetest.Put(sampleObject(4, 5))}}))
	require.Equal(t, "100", horizonOf(t, pods).RV)
	lines, err := changesOf(t, pods, "100")
	require.NoError(t, err)
	require.Contains(t, lines, "101 shop/o-02")
	require.Len(t, lines, 8)
	require.NoError(t, db.Close())

	edit(t, path, func(tx *bbolt.Tx) error {
		b := bucketAt(tx, "c/pods/g1/objects")
		return b.Put([]byte("shop/o-02"), []byte("x"))
	})
	db = openDB(t, path, bolt.Options{})
	defer db.Close()
	pods = openCollection(t, db, storetest.Info("pods"), append(lifeIndexes(), mine)...)
	require.NoError(t, pods.Apply(store.Batch{Changes: []store.Change{{Key: "shop/o-02", RV: "120"}}, Checkpoint: storetest.Checkpoint(121)}))
	require.Equal(t, "121", horizonOf(t, pods).RV)
	require.NoError(t, db.Close())
	report := checkReport(t, path, bolt.Keyring{})
	for _, p := range report.Problems {
		require.Contains(t, p.Reason, "bytes, its state has", "only the total may differ, since the corrupt record's part is unknown")
	}
}
