package memory_test

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// After batches and replacements of every size the collection equals a plain map, and views that
// were opened before equal an earlier one.
func TestChangesBesideModel(t *testing.T) {
	words := store.Index{Name: "words", Spec: "words", Func: func(o *object.Object) []string {
		return strings.Fields(strings.ReplaceAll(o.Labels()["words"], "-", " "))
	}}
	rapid.Check(t, func(t *rapid.T) {
		coll, err := memory.New().Open(storetest.Info("configmaps"), words, store.LabelIndex("app", "app"))
		require.NoError(t, err)
		model, rv := map[string]*object.Object{}, 1
		draw := func() store.Change {
			rv++
			name := "n-" + strconv.Itoa(rapid.IntRange(0, 900).Draw(t, "name"))
			if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				return store.Change{Key: "ns/" + name, RV: strconv.Itoa(rv)}
			}
			labels := map[string]string{
				"app":   rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "app"),
				"words": rapid.SampledFrom([]string{"", "x", "x-y", "y-x", "z"}).Draw(t, "words"),
			}
			return storetest.Put(storetest.Object("ns", name, name, strconv.Itoa(rv), labels, ""))
		}
		type past struct {
			view  store.View
			model map[string]*object.Object
		}
		var all []past
		set := func(changes []store.Change) []store.Change {
			for _, ch := range changes {
				if model[ch.Key] = ch.Object; ch.Object == nil {
					delete(model, ch.Key)
				}
			}
			return changes
		}
		for range rapid.IntRange(1, 3).Draw(t, "steps") {
			size := rapid.SampledFrom([]int{1, 30, 140, 1200}).Draw(t, "size")
			changes := map[string]store.Change{} // keys are unique
			for range size {
				ch := draw()
				changes[ch.Key] = ch
			}
			batch := set(slices.Collect(maps.Values(changes)))
			switch rapid.SampledFrom([]string{"batch", "one by one", "replacement"}).Draw(t, "kind") {
			case "batch":
				require.NoError(t, coll.Apply(store.Batch{Changes: batch, Checkpoint: storetest.Checkpoint(rv)}))
			case "one by one":
				for _, ch := range batch {
					require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{ch}}))
				}
			case "replacement":
				r, err := coll.Replace()
				require.NoError(t, err)
				for part := range slices.Chunk(batch, 100) {
					require.NoError(t, r.Apply(part))
				}
				require.NoError(t, r.Commit(storetest.Checkpoint(rv)))
			}
			v, err := coll.View()
			require.NoError(t, err)
			defer v.Close()
			all = append(all, past{v, maps.Clone(model)})
			for key, o := range model {
				got, err := coll.(*memory.Collection).Get(key)
				require.NoError(t, err)
				require.Same(t, o, got)
			}
			require.NoError(t, (&storetest.Model{Objects: model, Indexes: []store.Index{words}}).DiffLists(coll))
		}
		for _, p := range all {
			compare(t, p.view, p.model, words)
		}
	})
}

// compare compares a view, by key and by an index, with a model.
func compare(t *rapid.T, v store.View, model map[string]*object.Object, index store.Index) {
	bytes := 0
	var entries []store.IndexEntry
	keys := slices.Sorted(maps.Keys(model))
	for _, key := range keys {
		bytes += model[key].Size()
		for _, value := range index.Values(model[key]) {
			entries = append(entries, store.IndexEntry{Value: value, Key: key})
		}
	}
	slices.SortFunc(entries, store.IndexEntry.Compare)
	require.EqualValues(t, len(model), v.State().Count)
	require.EqualValues(t, bytes, v.State().Bytes)
	for o, err := range v.Objects("", "") {
		require.NoError(t, err)
		require.NotEmpty(t, keys, "%s is too many", o.Key())
		require.Same(t, model[keys[0]], o)
		keys = keys[1:]
	}
	require.Empty(t, keys)
	for e, err := range v.IndexEntries(index.Name, "", store.IndexEntry{}) {
		require.NoError(t, err)
		require.NotEmpty(t, entries)
		require.Zero(t, cmp.Or(entries[0].Compare(e)), "%v instead of %v", e, entries[0])
		entries = entries[1:]
	}
	require.Empty(t, entries)
}
