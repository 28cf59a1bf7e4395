package pipeline_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// onStores runs a test on a collection in memory and on disk, with a consumer that takes a list at once, and with
// one that takes each item before the next one comes.
func onStores(t *testing.T, test func(t *testing.T, coll store.Collection, parts bool)) {
	for _, s := range []struct {
		name string
		open func(t *testing.T) store.DB
	}{
		{"in memory", func(*testing.T) store.DB { return memory.New() }},
		{"on disk", func(t *testing.T) store.DB {
			db, err := bolt.Open(filepath.Join(t.TempDir(), "cache.db"), bolt.Options{})
			require.NoError(t, err)
			return db
		}},
	} {
		for _, tc := range []struct {
			name  string
			parts bool
		}{{"at once", false}, {"in parts", true}} {
			t.Run(s.name+", "+tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db := s.open(t)
					defer func() { require.NoError(t, db.Close()) }()
					coll, err := db.Open(storetest.Info("test"))
					require.NoError(t, err)
					test(t, coll, tc.parts)
				})
			})
		}
	}
}

// A list that is made by a watch names keys again and drops some. Store and sinks get its final
// state, in several batches or in one.
func TestWatchListRepeatsAndDropsKeys(t *testing.T) {
	held := []*object.Object{obj("kept", "1", 1), obj("changed", "2", 2), obj("dropped", "3", 3), obj("missing", "4", 4), obj("again", "5", 5)}
	onStores(t, func(t *testing.T, coll store.Collection, parts bool) {
		p := start(t, coll)
		p.list(t, store.ReasonInitial, "10", held...)
		synctest.Wait()
		require.Len(t, p.rec.take(), len(held))

		require.NoError(t, p.queue.BeginReplace(t.Context(), deltafifo.Replace{Reason: "expired", Cluster: "c"}))
		item := func(o *object.Object) {
			require.NoError(t, p.queue.ReplaceItem(o))
			if parts {
				synctest.Wait()
			}
		}
		drop := func(name string) {
			p.queue.DropItem("ns/" + name)
			if parts {
				synctest.Wait()
			}
		}
		item(held[0])
		item(obj("changed", "2", 11))
		item(obj("dropped", "3", 12))
		item(held[4])
		item(obj("new", "6", 13))
		item(obj("gone", "7", 14))
		item(obj("returned", "8", 15))
		drop("dropped")
		drop("gone")
		drop("never listed")
		drop("returned")
		drop("again")
		item(obj("changed", "2", 16))
		item(obj("new", "6", 17))
		item(obj("returned", "9", 18))
		item(obj("again", "10", 19))
		require.NoError(t, p.queue.EndReplace("20"))
		synctest.Wait()
		require.ElementsMatch(t, []string{
			"update changed@2 changed@16", "delete unknown dropped@3", "delete unknown missing@4",
			"update again@5 again@19", "add new@17", "add returned@18",
		}, p.rec.take())
		v, err := coll.View()
		require.NoError(t, err)
		defer v.Close()
		var stored []string
		for o, err := range v.Objects("", "") {
			require.NoError(t, err)
			stored = append(stored, o.GetName()+"@"+o.GetResourceVersion())
		}
		require.Equal(t, []string{"again@19", "changed@16", "kept@1", "new@17", "returned@18"}, stored)
		require.EqualValues(t, 5, v.State().Count)
		require.Equal(t, "20", v.State().RV)
	})
}

// Of a list that does not trust versions, as after a change of a transform, only objects with other bytes are
// written and reach the sinks, also if it names keys again.
func TestUntrustedListOfTheSame(t *testing.T) {
	held := []*object.Object{
		obj("kept", "1", 9), obj("other", "2", 2), obj("there-and-back", "3", 3), obj("late", "4", 4), obj("missing", "5", 5),
	}
	onStores(t, func(t *testing.T, coll store.Collection, parts bool) {
		p := start(t, coll)
		p.list(t, store.ReasonInitial, "10", held...)
		synctest.Wait()
		p.rec.take()
		before := p.stats.Counters().Counts

		require.NoError(t, p.queue.BeginReplace(t.Context(), deltafifo.Replace{
			Reason: string(store.ReasonScopeChanged), Cluster: "c", Force: true,
		}))
		for _, o := range []*object.Object{
			held[0], obj("other", "20", 2), obj("there-and-back", "3", 11), held[2], held[3],
			obj("late", "4", 12), obj("late", "40", 4), obj("new", "6", 6),
		} {
			require.NoError(t, p.queue.ReplaceItem(o))
			if parts {
				synctest.Wait()
			}
		}
		require.NoError(t, p.queue.EndReplace("10"))
		synctest.Wait()
		require.ElementsMatch(t, []string{
			"update other@2 other@2", "update there-and-back@3 there-and-back@3", "update late@4 late@4",
			"add new@6", "delete unknown missing@5",
		}, p.rec.take())
		after := p.stats.Counters().Counts
		require.Equal(t, []int{1, 3, 1}, []int{after.Added - before.Added, after.Updated - before.Updated, after.Deleted - before.Deleted})
		v, err := coll.View()
		require.NoError(t, err)
		defer v.Close()
		stored := map[string]string{}
		for o, err := range v.Objects("", "") {
			require.NoError(t, err)
			stored[o.GetName()+"@"+o.GetResourceVersion()] = string(o.GetUID())
		}
		require.Equal(t, map[string]string{
			"kept@9": "1", "other@2": "20", "there-and-back@3": "3", "late@4": "40", "new@6": "6",
		}, stored)
		require.Equal(t, "ns/kept", newestKeys(coll)[0], "an object that is not written is among the newest")
	})
}

// A list that repeats the key of a corrupt record counts it once, and drops it as it does any other.
func TestWatchListRepeatsCorruptRecord(t *testing.T) {
	for _, tc := range []struct {
		name  string
		drop  bool
		want  store.Counts
		calls []string
	}{
		{"repeated", false, store.Counts{Updated: 1}, []string{"update a@? a@12"}},
		{"dropped", true, store.Counts{Deleted: 1}, []string{"delete unknown a@?"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coll, err := corruptDB(t).Open(storetest.Info("test"))
				require.NoError(t, err)
				p := start(t, coll)
				synctest.Wait()
				p.rec.take()
				require.NoError(t, p.queue.BeginReplace(t.Context(), deltafifo.Replace{Reason: "expired", Cluster: "c"}))
				for _, o := range []*object.Object{obj("a", "1", 11), obj("b", "2", 5), obj("a", "1", 12)} {
					require.NoError(t, p.queue.ReplaceItem(o))
					synctest.Wait() // the loop takes each item before the next one comes
				}
				if tc.drop {
					p.queue.DropItem("ns/a")
				}
				require.NoError(t, p.queue.EndReplace("13"))
				synctest.Wait()
				require.Equal(t, tc.want, p.stats.Counters().Counts)
				require.Equal(t, tc.calls, p.rec.take())
			})
		})
	}
}
