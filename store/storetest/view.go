package storetest

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

var viewRules = []rule{
	{name: "a view does not change with Apply", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")), Put(cm("shop", "y", 1, "app", "door")))
		before, v := s.model.Clone(), s.view(t)
		s.apply(t, Checkpoint(2), Put(cm("shop", "x", 2, "app", "door")), Delete("shop/y"), Put(cm("shop", "z", 2)))
		before.Equal(t, v)
		s.check(t)
	}},
	{name: "an iteration does not change with Apply", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		for i := range 200 {
			s.model.change([]store.Change{Put(cm("shop", "x"+strconv.Itoa(1000+i), 1, "app", "till"))})
		}
		var all []store.Change
		for _, key := range s.model.Keys("", "") {
			all = append(all, Put(s.model.Objects[key]))
		}
		s.replace(t, Checkpoint(1), all...)
		before, v := s.model.Clone(), s.view(t)

		// The writer runs inside the readers' loops: it must not wait for any of them.
		var keys []string
		for o, err := range v.Objects("", "") {
			require.NoError(t, err)
			keys = append(keys, o.Key())
			if len(keys)%20 == 10 {
				s.apply(t, Checkpoint(len(keys)), Delete(o.Key()), Delete(all[199].Key), Put(cm("shop", "w"+o.GetName(), 2)))
			}
		}
		require.Equal(t, before.Keys("", ""), keys)
		keys = nil
		for key, err := range v.IndexKeys("app", "till", "") {
			require.NoError(t, err)
			keys = append(keys, key)
			if len(keys)%20 == 15 {
				s.apply(t, Checkpoint(200+len(keys)), Delete(key), Delete(all[198].Key))
			}
		}
		require.Equal(t, before.Keys("", ""), keys)
		before.Equal(t, v)
		s.check(t)
	}},
	{name: "a view of a replacement sees before, then after", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)), Put(cm("shop", "y", 1)))
		before, old := s.model.Clone(), s.view(t)
		r := s.begin(t)
		changes := []store.Change{Put(cm("shop", "x", 2)), Delete("shop/y"), Put(cm("shop", "z", 2))}
		for _, ch := range changes {
			require.NoError(t, r.Apply([]store.Change{ch}))
			s.check(t)
		}
		during := s.view(t)
		s.commit(t, r, Checkpoint(2), changes...)
		before.Equal(t, old)
		before.Equal(t, during)
		s.check(t)
	}},
	{name: "views of several states at once", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		var views []store.View
		var models []*Model
		for i := range 10 {
			s.apply(t, Checkpoint(i+1), Put(cm("shop", "x", i)), Put(cm("shop", "x"+strconv.Itoa(i), i)))
			views, models = append(views, s.view(t)), append(models, s.model.Clone())
		}
		for i, v := range views {
			models[i].Equal(t, v)
		}
		for i := range views {
			if i%2 == 0 {
				views[i].Close()
			}
		}
		for i, v := range views {
			if i%2 == 1 {
				models[i].Equal(t, v)
			}
		}
	}},
	{name: "prefix and after", run: testRanges},
	{name: "a header of the newest state without a view", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)), Put(cm("shop", "y", 1)))
		s.apply(t, Checkpoint(2), Put(cm("shop", "x", 2)), Delete("shop/y"))
		got, err := s.coll.Header("shop/x")
		require.NoError(t, err)
		require.Equal(t, s.model.header("shop/x"), got)
		read := s.coll.Lookup()
		got, err = read.Header("shop/x")
		require.NoError(t, err)
		require.Equal(t, s.model.header("shop/x"), got)
		fails := func(key string, want error) {
			t.Helper()
			_, err := s.coll.Header(key)
			require.ErrorIs(t, err, want)
			_, err = read.Header(key)
			require.ErrorIs(t, err, want)
			_, err = read.Get(key)
			require.ErrorIs(t, err, want)
		}
		fails("shop/y", store.ErrNotFound)
		require.NoError(t, h.DB().Drop("a"))
		fails("shop/x", store.ErrNoCollection)
		require.NoError(t, h.DB().Close())
		fails("shop/x", store.ErrClosed)
	}},
	{name: "the bytes of an object are a copy", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)), Put(cm("shop", "y", 1)))
		v := s.view(t)
		x, err := v.Raw("shop/x", make([]byte, 0, 4096))
		require.NoError(t, err)
		y, err := v.Raw("shop/y", x)
		require.NoError(t, err)
		require.Same(t, &x[0], &y[0], "the buffer is used")
		v.Close()
		require.Equal(t, s.model.Objects["shop/y"].Raw(), y)
		clear(y)
		s.check(t)
	}},
	{name: "a record is decoded after the view, its object and the store are gone", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)), Put(cm("shop", "y", 1)))
		s.apply(t, Checkpoint(2), Put(cm("shop", "z", 2)))
		want := s.model.Keys("", "")
		v := s.view(t)
		var records []store.Record
		for rec, err := range v.Records("", "") {
			require.NoError(t, err)
			records = append(records, rec)
		}
		v.Close()
		s.apply(t, Checkpoint(3), Delete("shop/x"), Put(cm("shop", "y", 3)))
		require.NoError(t, h.DB().Close())
		var got []string
		again := func(yield func(store.Record, error) bool) {
			for _, rec := range records {
				yield(rec, nil)
			}
		}
		for o, err := range decoded(again) {
			require.NoError(t, err)
			got = append(got, o.Key())
		}
		require.Equal(t, want, got)
	}},
	{name: "an iteration may be left early and run again", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("a", "x", 1)), Put(cm("a", "y", 1)), Put(cm("b", "x", 1)))
		v := s.view(t)
		objects, headers := v.Objects("", ""), v.Headers("", "")
		keys, entries := v.IndexKeys(store.NamespaceIndex, "a", ""), v.IndexEntries(store.NamespaceIndex, "", store.IndexEntry{})
		for range 2 {
			for o, err := range objects {
				require.NoError(t, err)
				require.Equal(t, "a/x", o.Key())
				break
			}
			for hd, err := range headers {
				require.NoError(t, err)
				require.Equal(t, "a/x", hd.Key)
				break
			}
			for key, err := range keys {
				require.NoError(t, err)
				require.Equal(t, "a/x", key)
				break
			}
			for e, err := range entries {
				require.NoError(t, err)
				require.Equal(t, store.IndexEntry{Value: "a", Key: "a/x"}, e)
				break
			}
		}
		s.model.Equal(t, v)
	}},
	{name: "a closed view returns ErrClosed, its objects stay", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		x := cm("shop", "x", 1)
		s.replace(t, Checkpoint(1), Put(x))
		v := s.view(t)
		o, err := v.Get("shop/x")
		require.NoError(t, err)
		v.Close()
		v.Close()
		require.True(t, sameObject(o, x))
		_, err = v.Get("shop/x")
		require.ErrorIs(t, err, store.ErrClosed)
		_, err = v.Raw("shop/x", nil)
		require.ErrorIs(t, err, store.ErrClosed)
		_, err = v.Header("shop/x")
		require.ErrorIs(t, err, store.ErrClosed)
		for _, err := range errorsOf(v) {
			require.ErrorIs(t, err, store.ErrClosed)
		}
	}},
	{name: "a view outlives Drop", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")), Put(cm("shop", "y", 1)))
		v := s.view(t)
		require.NoError(t, h.DB().Drop("a"))
		s.model.Equal(t, v)
	}},
}

func testRanges(t *testing.T, h Harness) {
	s := newSubject(t, h, Info("a"))
	var changes []store.Change
	for _, ns := range []string{"", "a", "a-b", "a.b", "ab", "b"} {
		for _, name := range []string{"x", "x-1", "y"} {
			changes = append(changes, Put(cm(ns, name, 1)))
		}
	}
	s.replace(t, Checkpoint(1), changes...)
	v := s.view(t)
	for _, tc := range []struct {
		prefix, after string
		want          []string
	}{
		{"a/", "", []string{"a/x", "a/x-1", "a/y"}},
		{"a/", "a/x", []string{"a/x-1", "a/y"}},
		{"a/", "a/y", nil},
		{"a/", "a.b/y", []string{"a/x", "a/x-1", "a/y"}},
		{"a/", "ab/x", nil},
		{"a/", "a/xx", []string{"a/y"}},
		{"x", "", []string{"x", "x-1"}},
		{"", "x", []string{"x-1", "y"}},
		{"", "y", nil},
		{"z", "", nil},
	} {
		var got []string
		for o, err := range v.Objects(tc.prefix, tc.after) {
			require.NoError(t, err)
			got = append(got, o.Key())
		}
		require.Equal(t, tc.want, got, "Objects(%q, %q)", tc.prefix, tc.after)
	}
	afters := append(s.model.Keys("", ""), "", "a", "a/", "a0", "zz")
	for _, prefix := range []string{"", "a", "a/", "a-b/", "a.b/x", "b/", "x", "c"} {
		for _, after := range afters {
			require.NoError(t, s.model.DiffRange(v, prefix, after))
		}
	}
}

// errorsOf returns the last error of each iteration of a view.
func errorsOf(v store.View) map[string]error {
	errs := map[string]error{"Objects": nil, "Records": nil, "Headers": nil, "IndexKeys": nil, "IndexEntries": nil}
	for _, errs["Objects"] = range v.Objects("", "") {
	}
	for _, errs["Records"] = range v.Records("", "") {
	}
	for _, errs["Headers"] = range v.Headers("", "") {
	}
	for _, errs["IndexKeys"] = range v.IndexKeys(store.NamespaceIndex, "shop", "") {
	}
	for _, errs["IndexEntries"] = range v.IndexEntries(store.NamespaceIndex, "", store.IndexEntry{}) {
	}
	return errs
}

var closeRules = []rule{
	{name: "a closed store returns ErrClosed", run: func(t *testing.T, h Harness) {
		s, replacing := newSubject(t, h, Info("a")), newSubject(t, h, Info("b"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		r := replacing.begin(t)
		require.NoError(t, h.DB().Close())

		_, errOpen := h.DB().Open(Info("a"))
		_, errNew := h.DB().Open(Info("new"))
		_, errCollections := h.DB().Collections()
		_, errView := h.DB().View("a")
		_, errCollView := s.coll.View()
		_, errReplace := s.coll.Replace()
		for _, tc := range []struct {
			name string
			err  error
		}{
			{"Open", errOpen}, {"Open of a new one", errNew}, {"Collections", errCollections}, {"View", errView},
			{"Drop", h.DB().Drop("a")}, {"Collection.View", errCollView}, {"Replace", errReplace},
			{"Apply", s.coll.Apply(store.Batch{Changes: []store.Change{Delete("shop/x")}})},
			{"Replacement.Apply", r.Apply([]store.Change{Delete("shop/x")})},
			{"Replacement.Commit", r.Commit(Checkpoint(2))},
		} {
			require.ErrorIs(t, tc.err, store.ErrClosed, tc.name)
		}
		require.NoError(t, r.Abort())
	}},
	{name: "Close waits for open views", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		v := s.view(t)
		done := make(chan error, 1)
		go func() { done <- h.DB().Close() }()
		for range 100 {
			runtime.Gosched()
			s.model.Equal(t, v)
			select {
			case err := <-done:
				t.Fatalf("closed with a view open, error %v", err)
			default:
			}
		}
		v.Close()
		require.NoError(t, <-done)
	}},
	{name: "totals do not go back", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		before := h.DB().Stats()
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		after := h.DB().Stats()
		require.GreaterOrEqual(t, after.Commits, before.Commits)
	}},
}
