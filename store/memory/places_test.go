package memory

import (
	"maps"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// An object that takes the place of another is found at once by those who look, wherever its
// page has gone since it was changed last, and snapshots stay as they were.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db := New(WithoutHistory())
		info := storetest.Info("configmaps")
		h := newCollection(db, &info)
		model, rv := map[string]*object.Object{}, 1
		type past struct {
			content *content
			model   map[string]*object.Object
		}
		var all []past
		same := func(p past) {
			count, last := 0, ""
			for key, o := range p.content.objects.all {
				if p.model[key] != o || key <= last {
					t.Fatalf("%s after %q is not what the model has", key, last)
				}
				count, last = count+1, key
			}
			require.Len(t, p.model, count)
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			first, step := rapid.IntRange(0, 500).Draw(t, "first"), rapid.SampledFrom([]int{1, 7, 499}).Draw(t, "step")
			gone := rapid.IntRange(0, 3).Draw(t, "gone") == 0
			for i := range rapid.SampledFrom([]int{1, 30, 500}).Draw(t, "changes") {
				name := strconv.Itoa((first + i*step) % 500)
				rv++
				ch := store.Change{Key: "ns/" + name, RV: strconv.Itoa(rv)}
				if !gone {
					ch = storetest.Put(storetest.Object("ns", name, name, strconv.Itoa(rv), nil, ""))
				}
				h.show([]store.Change{ch}, &store.Checkpoint{RV: strconv.Itoa(rv)}, nil)
				if delete(model, ch.Key); !gone {
					model[ch.Key] = ch.Object
				}
			}
			switch rapid.SampledFrom([]string{"settle", "settle", "snapshot", "nothing"}).Draw(t, "then") {
			case "settle":
				h.work.settle()
				same(past{h.work, model})
			case "snapshot":
				all = append(all, past{h.work.snapshot(), maps.Clone(model)})
			}
		}
		for _, p := range append(all, past{h.work.snapshot(), model}) {
			same(p)
		}
	})
}
