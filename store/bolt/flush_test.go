package bolt_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// TestFlush_SmallBatch_Waits checks when a flush comes by itself.
func TestFlush_SmallBatch_Waits(t *testing.T) {
	change := func(n int) store.Batch { // of 1.5 KB that do not compress
		return store.Batch{
			Changes:    []store.Change{storetest.Put(storetest.Object("ns", fmt.Sprint("o-", n), "u", fmt.Sprint(n), nil, incompressible(n)))},
			Checkpoint: goingOn(n),
		}
	}
	bookmark := store.Batch{Checkpoint: goingOn(9_000)}
	for _, x := range []struct {
		name     string
		interval time.Duration
		batch    store.Batch
		after    time.Duration
	}{
		{"a change", 5 * time.Second, change(2), time.Minute},
		{"a bookmark", 5 * time.Second, bookmark, time.Minute},
		{"a change, a short interval", 50 * time.Millisecond, change(2), 600 * time.Millisecond},
		{"a change, an interval of half a minute", 30 * time.Second, change(2), time.Minute},
		{"a bookmark, an interval of half a minute", 30 * time.Second, bookmark, 6 * time.Minute},
		{"a change, a long interval", 5 * time.Minute, change(2), 5 * time.Minute},
	} {
		t.Run(x.name, func(t *testing.T) {
			clock := newSimClock()
			db, _ := newDB(t, bolt.Options{Clock: clock, FlushInterval: x.interval})
			c := openCollection(t, db, storetest.Info("a"))
			replaceAll(t, c, nil, 1)
			before := db.Stats().Commits
			require.NoError(t, c.Apply(x.batch))
			clock.step(x.after - time.Millisecond)
			require.Equal(t, before, db.Stats().Commits, "the batch is not flushed early")
			clock.step(time.Millisecond)
			require.Equal(t, before+1, db.Stats().Commits)
			clock.step(time.Hour)
			require.Equal(t, before+1, db.Stats().Commits, "nothing is left to flush")
		})
	}

	clock := newSimClock()
	db, _ := newDB(t, bolt.Options{Clock: clock, ViewLimit: 24 * time.Hour})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, nil, 1)
	n, commits := 2, int64(0)
	flushed := func() bool {
		was := commits
		commits = db.Stats().Commits
		return commits > was
	}
	apply := func(times int) {
		for range times {
			require.NoError(t, c.Apply(change(n)))
			n++
		}
	}

	apply(20)
	require.NoError(t, db.Flush())
	require.True(t, flushed(), "the flush that makes the dictionary")
	clock.step(time.Hour)
	require.False(t, flushed())

	apply(1000) // which count as a quarter, so as less than 1 MiB
	require.False(t, flushed())
	clock.step(5*time.Second - time.Millisecond)
	require.False(t, flushed())
	clock.step(time.Millisecond)
	require.True(t, flushed(), "in company it waits for the interval alone")

	apply(1)
	clock.step(20 * time.Second)
	require.False(t, flushed())
	apply(1000)
	clock.step(0)
	require.True(t, flushed(), "the company came late")

	apply(1)
	require.NoError(t, db.Flush())
	require.True(t, flushed(), "Flush does not wait for a batch")

	clock.step(30 * time.Second)
	apply(1)
	clock.step(45 * time.Second)
	require.False(t, flushed(), "the change from before the flush does not count")
	clock.step(25 * time.Second)
	require.True(t, flushed())
}
