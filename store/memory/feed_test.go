package memory_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// Numbers too large for a machine word are in order too, after those that fit in one.
func TestLongResourceVersions(t *testing.T) {
	const below, last, above = "184467440737095516", "18446744073709551615", "1844674407370955162"
	db := memory.New()
	defer db.Close()
	coll, err := db.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	at := func(rv string) store.Checkpoint { c := storetest.Checkpoint(1); c.RV = rv; return c }
	one := func(name, rv string) store.Change {
		return storetest.Put(storetest.Object("shop", name, "uid-"+name, rv, nil, "x"))
	}
	r, err := coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Commit(at(below+"10")))
	require.NoError(t, coll.Apply(store.Batch{Checkpoint: at(last), Changes: []store.Change{one("a", below+"12"), one("b", last)}}))
	require.NoError(t, coll.Apply(store.Batch{Checkpoint: at(above + "5"), Changes: []store.Change{
		one("d", above+"4"), one("c", above+"1"), one("a", above+"3"), {Key: "shop/b"}, // at the checkpoint
	}}))
	require.NoError(t, coll.Apply(store.Batch{Checkpoint: at(above + "9"), Changes: []store.Change{{Key: "shop/c", RV: above + "7"}}}))
	v, err := coll.View()
	require.NoError(t, err)
	defer v.Close()
	since := func(rv string) (lines []string) {
		for e, err := range v.Changes(rv) {
			require.NoError(t, err)
			lines = append(lines, e.Key+"@"+e.RV)
		}
		return lines
	}
	all := []string{"shop/a@" + above + "3", "shop/d@" + above + "4", "shop/b@" + above + "5", "shop/c@" + above + "7"}
	require.Equal(t, all, since(below+"10"))
	require.Equal(t, all, since(last))
	require.Equal(t, all[2:], since(above+"4"))
}

// TestHistoryRetention_WrongClock: changes are trimmed a day after they came, whatever dates they have.
func TestHistoryRetention_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, off := range map[string]func(hour int) time.Duration{
		"right":        func(int) time.Duration { return 0 },
		"behind":       func(int) time.Duration { return -26 * year },
		"ahead":        func(int) time.Duration { return 14 * year },
		"jumps":        func(hour int) time.Duration { return time.Duration(hour%3-1) * 20 * year },
		"right again":  func(hour int) time.Duration { return time.Duration(hour/30%2) * 14 * year },
		"behind later": func(hour int) time.Duration { return -time.Duration(hour/30%2) * 26 * year },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memory.New()
				defer db.Close()
				coll, err := db.Open(storetest.Info("configmaps"))
				require.NoError(t, err)
				r, err := coll.Replace()
				require.NoError(t, err)
				require.NoError(t, r.Commit(store.Checkpoint{RV: "1000", LastList: time.Now()}))
				for hour := range 100 {
					rv := strconv.Itoa(1001 + hour)
					require.NoError(t, coll.Apply(store.Batch{
						Checkpoint: store.Checkpoint{RV: rv, LastEvent: time.Now().Add(off(hour)).UTC()},
						Changes:    []store.Change{storetest.Put(storetest.Object("shop", "x"+rv, "uid-"+rv, rv, nil, "x"))},
					}))
					v, err := coll.View()
					require.NoError(t, err)
					h, err := v.Horizon()
					v.Close()
					require.NoError(t, err)
					require.Equal(t, strconv.Itoa(max(1000, 1000+hour-24)), h.RV)
					time.Sleep(time.Hour)
				}
			})
		})
	}
}
