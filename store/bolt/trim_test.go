package bolt_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// movedClock is a wall clock that is off, and can be set while the monotonic one goes on.
type movedClock struct {
	clock.RealClock
	off time.Duration
}

func (c *movedClock) Now() time.Time {
	t := time.Now()
	moved := t.Add(c.off)
	// Add moves both readings of a time; the monotonic one is the second word.
	(*[2]uint64)(unsafe.Pointer(&moved))[1] = (*[2]uint64)(unsafe.Pointer(&t))[1]
	return moved
}

func (c *movedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestHistoryRetention_WrongClock: a wrong clock trims no change that is younger than the retention, at a start or
// while the database is open, and once it is right the history is trimmed as ever.
func TestHistoryRetention_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, off := range map[string]time.Duration{
		"two hours behind": -2 * time.Hour, "26 years behind": -26 * year, "two hours ahead": 2 * time.Hour, "14 years ahead": 14 * year,
	} {
		for _, running := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", set while open"}[running], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					clk := &movedClock{}
					path := filepath.Join(t.TempDir(), "cache.db")
					var db *bolt.DB
					var c store.Collection
					reopen := func() {
						var err error
						if db != nil {
							require.NoError(t, db.Close())
						}
						db, err = bolt.Open(path, bolt.Options{Clock: clk, HistoryRetention: 2 * time.Hour})
						require.NoError(t, err)
						c, err = db.Open(storetest.Info("a"))
						require.NoError(t, err)
					}
					apply := func(rv int) {
						require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{put(rv, rv)}, Checkpoint: store.Checkpoint{
							RV: now(rv).RV, Cluster: now(rv).Cluster, LastEvent: clk.Now().UTC(),
						}}))
						require.NoError(t, db.Flush())
					}
					reopen()
					replaceAll(t, c, nil, 10)
					apply(100)
					time.Sleep(90 * time.Minute)
					apply(101)

					clk.off = off
					if !running {
						reopen()
					}
					apply(110)
					time.Sleep(61 * time.Minute)
					apply(120)
					reopen()
					require.Less(t, horizonOf(t, c).RV, "110", "the changes with the wrong clock are the younger ones")

					clk.off = 0
					for rv := 200; rv < 206; rv++ {
						apply(rv)
						time.Sleep(61 * time.Minute)
					}
					apply(206)
					require.Contains(t, []string{"200", "201", "202", "203", "204"}, horizonOf(t, c).RV, "it is trimmed again")
					require.NoError(t, db.Close())
				})
			})
		}
	}
}
