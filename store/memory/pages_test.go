package memory

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Pages hold what a map and its sorted keys hold, over splits and merges, and copies
// stay as they were.
func TestPages(t *testing.T) {
	key := func(i int) string { return fmt.Sprintf("%04d", i) }
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			pages pages[int]
			owner *owner
			model map[string]int
		}
		now := version{owner: new(owner), model: map[string]int{}}
		var past []version
		same := func(v version) {
			require.Equal(t, len(v.model), v.pages.count)
			want := slices.Sorted(maps.Keys(v.model))
			var keys []string
			for k, n := range v.pages.all {
				keys = append(keys, k)
				require.Equal(t, v.model[k], n, k)
			}
			require.Equal(t, want, keys)
			for i, e := range v.pages.list {
				require.Equal(t, e.keys[0], e.first)
				require.Len(t, e.items, len(e.keys))
				require.LessOrEqual(t, len(e.keys), pageSize, "page %d", i)
			}
			from := key(rapid.IntRange(-1, 2100).Draw(t, "from"))
			at, _ := slices.BinarySearch(want, from)
			c := v.pages.seek(from)
			for ; c.valid(); c.next() {
				require.Equal(t, want[at], c.key())
				require.Equal(t, v.model[want[at]], c.value())
				at++
			}
			require.Len(t, want, at)
		}
		each := func(t *rapid.T, do func(string)) {
			first, step := rapid.IntRange(0, 2000).Draw(t, "first"), rapid.SampledFrom([]int{1, 7, -1}).Draw(t, "step")
			for range rapid.SampledFrom([]int{1, 20, 700}).Draw(t, "keys") {
				do(key((first%2000 + 2000) % 2000))
				first += step
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n := rapid.Int().Draw(t, "value")
				each(t, func(k string) {
					if c, found := now.pages.find(k); found {
						now.pages.set(c, n, now.owner)
						now.model[k] = n
					}
				})
			},
			"merge": func(t *rapid.T) {
				var edits []edit[int]
				for range rapid.IntRange(1, 3).Draw(t, "runs") {
					e := edit[int]{value: rapid.Int().Draw(t, "value"), gone: rapid.IntRange(0, 2).Draw(t, "kind") == 0}
					each(t, func(k string) {
						e.key = k
						edits = append(edits, e)
						if now.model[k] = e.value; e.gone {
							delete(now.model, k)
						}
					})
				}
				now.pages.merge(edits, now.owner)
			},
			"copy": func(*rapid.T) {
				past = append(past, version{now.pages, now.owner, maps.Clone(now.model)})
				now.owner = new(owner)
			},
			"": func(*rapid.T) {
				for _, v := range append(past, now) {
					same(v)
				}
			},
		})
	})
}
