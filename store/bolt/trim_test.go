package bolt_test

import (
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/clocks/clockstest"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

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
					clk := &clockstest.Moved{}
					path := filepath.Join(t.TempDir(), "cache.db")
					var db *bolt.DB
					var c store.Collection
					reopen := func() {
						if db != nil {
							require.NoError(t, db.Close())
						}
						db = openDB(t, path, bolt.Options{Clock: clk, HistoryRetention: 2 * time.Hour})
						c = openCollection(t, db, storetest.Info("a"))
					}
					applied := map[string]time.Time{}
					requireKept := func() {
						t.Helper()
						rv := horizonOf(t, c).RV
						if at, ok := applied[rv]; ok {
							require.GreaterOrEqual(t, time.Since(at), 2*time.Hour, "the change at %s is trimmed too early", rv)
						}
					}
					apply := func(rv int) {
						applied[strconv.Itoa(rv)] = time.Now()
						require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{put(rv, rv)}, Checkpoint: store.Checkpoint{
							RV: now(rv).RV, Cluster: now(rv).Cluster, LastEvent: clk.Now().UTC(),
						}}))
						require.NoError(t, db.Flush())
						requireKept()
					}
					reopen()
					replaceAll(t, c, nil, 10)
					apply(100)
					time.Sleep(90 * time.Minute)
					apply(101)

					clk.Off = off
					if !running {
						reopen()
					}
					apply(110)
					time.Sleep(61 * time.Minute)
					apply(120)
					reopen()
					requireKept()

					clk.Off = 0
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
