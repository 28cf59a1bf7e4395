package pipeline_test

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/store"
)

func newestKeys(c store.Collection) []string {
	keys := c.State().Newest
	return slices.DeleteFunc(keys[:], func(key string) bool { return key == "" })
}

// The checkpoint names the newest objects: those of the first list, then the changed ones, without
// the deleted ones, over a restart too.
func TestNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := memoryCollection(t)
		p := start(t, coll)
		p.list(t, store.ReasonInitial, "20", obj("a", "1", 3), obj("b", "2", 15), obj("c", "3", 8), obj("d", "4", 12))
		synctest.Wait()
		require.Equal(t, []string{"ns/b", "ns/d", "ns/c"}, newestKeys(coll))
		require.NoError(t, p.queue.Update(obj("a", "1", 21)))
		require.NoError(t, p.queue.Delete(obj("d", "4", 22)))
		synctest.Wait()
		require.Equal(t, []string{"ns/a", "ns/b"}, newestKeys(coll), "no object takes the place of a deleted one")
		require.NoError(t, p.queue.Bookmark("30"))
		synctest.Wait()
		require.Equal(t, []string{"ns/a", "ns/b"}, newestKeys(coll))

		p = start(t, coll)
		require.NoError(t, p.queue.Add(obj("e", "5", 31)))
		synctest.Wait()
		require.Equal(t, []string{"ns/e", "ns/a", "ns/b"}, newestKeys(coll))
		p.list(t, store.ReasonRVAhead, "10", obj("a", "1", 3), obj("b", "2", 5), obj("x", "6", 4))
		synctest.Wait()
		require.Equal(t, []string{"ns/b", "ns/x", "ns/a"}, newestKeys(coll), "a list of another history replaces all newest objects")
	})
}

// Compared with a model: the newest objects that still exist come first, in order.
func TestNewestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rv, held := 1, map[string]int{}
		steps := rapid.SliceOfN(rapid.IntRange(0, 11), 1, 60).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			coll := memoryCollection(t)
			p := start(t, coll)
			p.list(t, store.ReasonInitial, "1")
			synctest.Wait()
			known := []string{} // by the rule: at most three, holes are not filled
			for _, step := range steps {
				rv++
				name := string(rune('a' + step%6))
				o, key := obj(name, name, rv), "ns/"+name
				known = slices.DeleteFunc(known, func(k string) bool { return k == key })
				if _, ok := held[key]; step >= 6 && ok {
					delete(held, key)
					require.NoError(t, p.queue.Delete(o))
				} else {
					held[key] = rv
					known = append([]string{key}, known...)
					known = known[:min(len(known), store.NewestKeys)]
					require.NoError(t, p.queue.Update(o))
				}
				synctest.Wait()
				require.Equal(t, known, newestKeys(coll), "%v", steps)
			}
			byRV := slices.SortedFunc(maps.Keys(held), func(a, b string) int { return cmp.Compare(held[b], held[a]) })
			if len(known) > 0 {
				require.Equal(t, byRV[0], known[0])
			}
			require.Equal(t, strconv.Itoa(rv), coll.State().RV)
		})
	})
}
