package bolt_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// A new interval is in force from the next change on.
func TestAdjustInterval(t *testing.T) {
	clock := newSimClock()
	db, _ := newDB(t, bolt.Options{Clock: clock, FlushInterval: time.Second})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, nil, 1)
	db.Adjust(2*time.Second, 0, 0)
	before := db.Stats().Commits
	require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{put(2, 2)}, Checkpoint: now(2)}))
	clock.step(24*time.Second - time.Millisecond) // twelve intervals, as the batch is small
	require.Equal(t, before, db.Stats().Commits, "a small batch is not flushed early")
	clock.step(time.Millisecond)
	require.Equal(t, before+1, db.Stats().Commits)
}

// The options change beside readers, a writer and the statistics.
func TestAdjustBesideOthers(t *testing.T) {
	db, _ := newDB(t, bolt.Options{})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, nil, 1)
	var others sync.WaitGroup
	for _, do := range []func(i int){
		func(int) {
			v, err := c.View()
			if assert.NoError(t, err) {
				v.Close()
			}
		},
		func(i int) {
			assert.NoError(t, c.Apply(store.Batch{Changes: []store.Change{put(i, 100+i)}, Checkpoint: now(100 + i)}))
			assert.NoError(t, db.Flush())
		},
		func(int) { db.Stats() },
	} {
		others.Go(func() {
			for i := range 20 {
				do(i)
			}
		})
	}
	for i := range 100 {
		db.Adjust(time.Duration(i)*time.Second, time.Duration(i)*time.Hour, int64(i)<<20)
	}
	others.Wait()
}

// If the history's bound becomes shorter, the history is trimmed within the hour.
func TestAdjustHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := newDB(t, bolt.Options{HistoryRetention: 100 * time.Hour})
		c := openCollection(t, db, storetest.Info("a"))
		replaceAll(t, c, []store.Change{put(0, 1)}, 10)
		for i := range 10 {
			time.Sleep(time.Hour)
			require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{put(i, 100+i)}, Checkpoint: now(100 + i)}))
		}
		db.Adjust(0, 3*time.Hour, 0)
		time.Sleep(61 * time.Minute)
		require.NoError(t, c.Apply(store.Batch{Checkpoint: now(200)}))
		require.NoError(t, db.Flush())
		require.InDelta(t, 3*time.Hour, time.Since(horizonOf(t, c).Time), float64(90*time.Minute), "an entry comes each hour")
	})
}
