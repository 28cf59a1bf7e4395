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

// TestSettle makes changes that wait for their places by the thousand, with a look at
// what comes out only now and then.
func TestSettle(t *testing.T) {
	words := store.Index{Name: "words", Spec: "words", Func: func(o *object.Object) []string {
		return strings.Fields(strings.ReplaceAll(o.Labels()["words"], "-", " "))
	}}
	rapid.Check(t, func(t *rapid.T) {
		var opts []memory.Option
		if rapid.Bool().Draw(t, "without history") {
			opts = append(opts, memory.WithoutHistory())
		}
		coll, err := memory.New(opts...).Open(storetest.Info("configmaps"), words, store.LabelIndex("app", "app"))
		require.NoError(t, err)
		model, rv := map[string]*object.Object{}, 1
		draw := func() store.Change {
			rv++
			name := "n-" + strconv.Itoa(rapid.IntRange(0, 700).Draw(t, "name"))
			if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				return store.Change{Key: "ns/" + name, RV: strconv.Itoa(rv)}
			}
			labels := map[string]string{
				"app":   rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "app"),
				"words": rapid.SampledFrom([]string{"", "x", "x-y", "y-x", "z"}).Draw(t, "words"),
			}
			return storetest.Put(storetest.Object("ns", name, name, strconv.Itoa(rv), labels, ""))
		}
		set := func(ch store.Change) {
			if ch.Object == nil {
				delete(model, ch.Key)
			} else {
				model[ch.Key] = ch.Object
			}
		}
		for range rapid.IntRange(1, 2).Draw(t, "looks") {
			writes := rapid.SampledFrom([]int{0, 1, 30, 1100}).Draw(t, "writes")
			if rapid.Bool().Draw(t, "in a list") {
				r, err := coll.Replace()
				require.NoError(t, err)
				for range writes {
					ch := draw()
					set(ch)
					require.NoError(t, r.Apply([]store.Change{ch}))
				}
				require.NoError(t, r.Commit(storetest.Checkpoint(rv)))
			} else {
				for range writes {
					ch := draw()
					set(ch)
					require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{ch}}))
				}
			}
			for key, o := range model { // what needs no place
				got, err := coll.(store.Getter).Get(key)
				require.NoError(t, err)
				require.Same(t, o, got)
				break
			}
			compare(t, coll, model, words)
		}
	})
}

// compare compares what a collection has, by key and by an index, with a model.
func compare(t *rapid.T, coll store.Collection, model map[string]*object.Object, index store.Index) {
	v, err := coll.View()
	require.NoError(t, err)
	defer v.Close()
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
	require.NoError(t, (&storetest.Model{Objects: model, Indexes: []store.Index{index}}).DiffLists(coll.(store.Lister)))
}
