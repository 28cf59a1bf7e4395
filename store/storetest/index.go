package storetest

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// tagIndex returns every word of a label as a value, in the label's order and with its duplicates.
func tagIndex() store.Index {
	return store.Index{Name: "tag", Spec: "words of the label tags", Func: func(o *object.Object) []string {
		return strings.Fields(o.Labels()["tags"])
	}}
}

var indexRules = []rule{
	{name: "lookups", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"), store.FieldIndex("payload", "data.payload"))
		s.replace(t, Checkpoint(1),
			Put(cm("b", "x", 1, "app", "till")), Put(cm("a", "y", 1, "app", "till")), Put(cm("a", "x", 1, "app", "till-2")),
			Put(cm("", "x", 1, "app", "")), Put(cm("", "y", 1)))
		s.check(t)
		v := s.view(t)
		require.Equal(t, []string{"app", "payload"}, v.Indexes())
		require.Equal(t, []string{"a/y", "b/x"}, collect(t, v.IndexKeys("app", "till", "")))
		require.Equal(t, []string{"x"}, collect(t, v.IndexKeys("app", "", "")), "the empty value is a value")
		require.Equal(t, []string{"a/y", "y"}, collect(t, v.IndexKeys("payload", "payload of y", "")))
		require.Empty(t, collect(t, v.IndexKeys("app", "til", "")))
		require.Equal(t, []store.IndexEntry{{Value: "", Key: "x"}, {Value: "till", Key: "a/y"}, {Value: "till", Key: "b/x"}, {Value: "till-2", Key: "a/x"}},
			collect(t, v.IndexEntries("app", "", store.IndexEntry{})))
	}},
	{name: "an absent index is ErrNoIndex", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		v := s.view(t)
		for _, name := range []string{"", "ap", "app2", "tier"} {
			n := 0
			for _, err := range v.IndexKeys(name, "x", "") {
				require.ErrorIs(t, err, store.ErrNoIndex)
				n++
			}
			for _, err := range v.IndexEntries(name, "", store.IndexEntry{}) {
				require.ErrorIs(t, err, store.ErrNoIndex)
				n++
			}
			require.Equal(t, 2, n, "one error an iteration")
		}
	}},
	{name: "values are sorted and unique", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), tagIndex())
		s.replace(t, Checkpoint(1), Put(cm("a", "x", 1, "tags", "red blue red green blue")), Put(cm("a", "y", 1, "tags", "  ")))
		s.check(t)
		require.Equal(t, []store.IndexEntry{{Value: "blue", Key: "a/x"}, {Value: "green", Key: "a/x"}, {Value: "red", Key: "a/x"}},
			collect(t, s.view(t).IndexEntries("tag", "", store.IndexEntry{})))
		s.apply(t, Checkpoint(2), Delete("a/x"))
		s.check(t)
	}},
	{name: "values are ordered before keys, whatever bytes they have", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.FieldIndex("payload", "data.payload"))
		var changes []store.Change
		for i, value := range []string{"a", "a\x01", "a\x00b", "a\x00", "ab", "a/b", "", "\x01", "ä", "a\uffff"} {
			for _, ns := range []string{"", "n", "z"} {
				changes = append(changes, Put(Object(ns, "x"+string(rune('0'+i)), "u", "1", nil, value)))
			}
		}
		s.replace(t, Checkpoint(1), changes...)
		s.check(t)
		require.Equal(t, []string{"n/x2", "x2", "z/x2"}, collect(t, s.view(t).IndexKeys("payload", "a\uFFFDb", "")))
	}},
	{name: "an update replaces the entries", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"), tagIndex())
		s.replace(t, Checkpoint(1), Put(cm("a", "x", 1, "app", "till", "tags", "red blue")), Put(cm("a", "y", 1, "app", "till", "tags", "red")))
		for i, labels := range [][]string{
			{"app", "door", "tags", "red green"},
			{"tags", "green"},
			{},
			{"app", "till", "tags", "blue"},
			{"app", "till", "tags", "blue"},
		} {
			s.apply(t, Checkpoint(i+2), Put(cm("a", "x", i+2, labels...)))
			s.check(t)
		}
		s.apply(t, Checkpoint(9), Delete("a/x"), Delete("a/y"))
		s.check(t)
		require.Empty(t, collect(t, s.view(t).IndexEntries("app", "", store.IndexEntry{})))
	}},
	{name: "a key put again after Delete has one entry", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("a", "x", 1, "app", "till")))
		s.apply(t, Checkpoint(2), Delete("a/x"))
		s.apply(t, Checkpoint(3), Put(cm("a", "x", 3, "app", "door")))
		s.check(t)
		require.Equal(t, []store.IndexEntry{{Value: "door", Key: "a/x"}}, collect(t, s.view(t).IndexEntries("app", "", store.IndexEntry{})))
	}},
	{name: "namespace", run: testNamespaceIndex},
	{name: "an index is built beside a writer", run: testIndexBesideWriter},
	{name: "prefix and after", run: testIndexRanges},
	{name: "pages", run: testPages},
}

// testIndexRanges iterates over every index from each entry, and from positions between entries.
func testIndexRanges(t *testing.T, h Harness) {
	s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"), tagIndex())
	var changes []store.Change
	for i, ns := range []string{"", "a", "a-b", "ab", "b"} {
		for j, name := range []string{"x", "x-1", "y"} {
			app := []string{"", "till", "till-2", "till\x01", "ti"}[(i+j)%5]
			changes = append(changes, Put(cm(ns, name, 1, "app", app, "tags", "red blue")))
		}
	}
	s.replace(t, Checkpoint(1), changes...)
	v := s.view(t)
	from := []store.IndexEntry{{}, {Value: "till"}, {Value: "till\x00"}, {Value: "till\x00", Key: "a/x"}, {Value: "a\x00b", Key: "x"}, {Key: "a"}, {Value: "a", Key: "ab/x"}, {Value: "zz"}}
	for _, name := range []string{"app", "tag", store.NamespaceIndex} {
		from = append(from, collect(t, v.IndexEntries(name, "", store.IndexEntry{}))...)
	}
	for _, prefix := range []string{"", "a", "ab", "b", "red", "ti", "till", "till-", "till\x01", "z"} {
		for _, after := range from {
			require.NoError(t, s.model.DiffIndexRange(v, prefix, after))
		}
	}
	// An iteration can skip from value to value.
	var values []string
	for after := (store.IndexEntry{}); ; {
		found := false
		for e, err := range v.IndexEntries("app", "", after) {
			require.NoError(t, err)
			values, after, found = append(values, e.Value), store.IndexEntry{Value: e.Value + "\x00"}, true
			break
		}
		if !found {
			break
		}
	}
	require.Equal(t, []string{"", "ti", "till", "till\x01", "till-2"}, values)
}

// testPages iterates in pages, each in a view of its own. An object that does not change is
// returned once. A change of a key up to the position is not seen, a later key is returned as it is
// then.
func testPages(t *testing.T, h Harness) {
	s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
	var changes []store.Change
	for i := range 30 {
		changes = append(changes, Put(cm("ns", "x"+string(rune('A'+i)), 1, "app", []string{"door", "till"}[i%2])))
	}
	s.replace(t, Checkpoint(1), changes...)
	keys, entries := s.model.Keys("", ""), s.model.Entries(s.model.Indexes[0])

	var gotKeys []string
	var gotEntries []store.IndexEntry
	for page := range 10 {
		var key string
		var entry store.IndexEntry
		if page > 0 {
			key, entry = gotKeys[len(gotKeys)-1], gotEntries[len(gotEntries)-1]
		}
		v := s.view(t)
		n := len(gotKeys) + 3
		for hd, err := range v.Headers("", key) {
			require.NoError(t, err)
			if gotKeys = append(gotKeys, hd.Key); len(gotKeys) == n {
				break
			}
		}
		n = len(gotEntries) + 3
		for e, err := range v.IndexEntries("app", "", entry) {
			require.NoError(t, err)
			if gotEntries = append(gotEntries, e); len(gotEntries) == n {
				break
			}
		}
		v.Close()
		// Another object with the same labels, and one that no page returns, because its key
		// is before all positions.
		s.apply(t, Checkpoint(page+2), Put(cm("ns", "xB", page+2, "app", "till")), Put(cm("a", "early", page+2, "app", "a")))
	}
	require.Equal(t, keys, gotKeys)
	require.Equal(t, entries, gotEntries)

	// The key at the position may be deleted.
	s.apply(t, Checkpoint(20), Delete(keys[4]))
	require.Equal(t, keys[5:], s.model.Keys("", keys[4]))
	require.NoError(t, s.model.DiffRange(s.view(t), "", keys[4]))
	require.NoError(t, s.model.DiffIndexRange(s.view(t), "", store.IndexEntry{Value: "door", Key: keys[4]}))
}

func testNamespaceIndex(t *testing.T, h Harness) {
	s := newSubject(t, h, Info("a"))
	s.check(t)
	// As bytes '-' and '.' come before '/': the keys of a-b and a.b come before a's, the values
	// after a.
	s.replace(t, Checkpoint(1),
		Put(cm("a-b", "x", 1)), Put(cm("a.b", "x", 1)), Put(cm("a", "x", 1)), Put(cm("a", "y", 1)), Put(cm("ab", "x", 1)),
		Put(cm("", "a", 1)), Put(cm("", "a-c", 1)), Put(cm("", "zz", 1)), Put(cm("0", "x", 1)))
	s.check(t)
	v := s.view(t)
	require.Empty(t, v.Indexes())
	require.Equal(t, []store.IndexEntry{
		{Value: "", Key: "a"}, {Value: "", Key: "a-c"}, {Value: "", Key: "zz"},
		{Value: "0", Key: "0/x"},
		{Value: "a", Key: "a/x"}, {Value: "a", Key: "a/y"},
		{Value: "a-b", Key: "a-b/x"},
		{Value: "a.b", Key: "a.b/x"},
		{Value: "ab", Key: "ab/x"},
	}, collect(t, v.IndexEntries(store.NamespaceIndex, "", store.IndexEntry{})))
	for _, tc := range []struct {
		ns   string
		want []string
	}{
		{"", []string{"a", "a-c", "zz"}},
		{"a", []string{"a/x", "a/y"}},
		{"a-b", []string{"a-b/x"}},
		{"ab", []string{"ab/x"}},
		{"a/", nil},
		{"a/x", nil},
		{"z", nil},
		{"zz", nil},
	} {
		require.Equal(t, tc.want, collect(t, v.IndexKeys(store.NamespaceIndex, tc.ns, "")), "namespace %q", tc.ns)
	}

	only := newSubject(t, h, Info("namespaced"))
	only.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
	only.check(t)
	cluster := newSubject(t, h, Info("cluster"))
	cluster.replace(t, Checkpoint(1), Put(cm("", "x", 1)))
	cluster.check(t)
	s.apply(t, Checkpoint(2), Delete("a/x"), Delete("a/y"), Delete("zz"))
	s.check(t)
}

// collect returns the items of an iteration.
func collect[E any](t T, seq iter.Seq2[E, error]) []E {
	t.Helper()
	var all []E
	for e, err := range seq {
		require.NoError(t, err)
		all = append(all, e)
	}
	return all
}

// testIndexBesideWriter adds, changes and removes indexes while the collection is written, replaced
// and read.
func testIndexBesideWriter(t *testing.T, h Harness) {
	s := newSubject(t, h, Info("a"))
	var all []store.Change
	for i := range 60 {
		all = append(all, Put(cm("ns", fmt.Sprintf("x%02d", i), 1, "app", []string{"door", "till", "gate"}[i%3], "tags", "red")))
	}
	s.replace(t, Checkpoint(1), all...)
	rv := 1
	for _, indexes := range [][]store.Index{
		{store.LabelIndex("app", "app")},
		{store.LabelIndex("app", "tags"), tagIndex()},
		{store.LabelIndex("app", "app"), tagIndex()},
		{tagIndex()},
		{store.LabelIndex("app", "app")},
	} {
		s.open(t, Info("a"), indexes...)
		before, old := s.model.Clone(), s.view(t)
		for i := range 20 {
			rv++
			key := fmt.Sprintf("x%02d", i*37%60)
			switch i % 5 {
			case 0:
				s.apply(t, Checkpoint(rv), Delete("ns/"+key))
			case 4:
				s.replace(t, Checkpoint(rv), Put(cm("ns", key, rv, "app", "gate", "tags", "blue")), Delete("ns/x59"))
			default:
				s.apply(t, Checkpoint(rv), Put(cm("ns", key, rv, "app", fmt.Sprint("app-", i), "tags", "red blue")))
			}
			s.check(t)
		}
		before.Equal(t, old)
		s.settle(t)
		before.Equal(t, old)
		s.check(t)
	}
}
