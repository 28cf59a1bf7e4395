package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// attributesIndex returns an index of the history: two labels, in the form that a spec stands for.
func attributesIndex(spec string) store.Index {
	return store.Index{Name: "attributes", Spec: spec, History: true, Func: func(o *object.Object) (all []string) {
		for _, label := range []string{"app", "tags"} {
			if v, ok := o.Labels()[label]; ok {
				all = append(all, spec+":"+label+"="+v)
			}
		}
		return all
	}}
}

// attributes describes the attributes that a model's history records.
type attributes struct {
	spec  string
	since int // they are recorded from this resourceVersion on
}

// track notes that the next changes are recorded with an index x. highest is the highest
// resourceVersion before them.
func (a *attributes) track(x *store.Index, highest int) {
	switch {
	case x == nil:
		*a = attributes{}
	case x.Spec != a.spec:
		*a = attributes{x.Spec, highest}
	}
}

// diffAttributes compares the attributes of an event's object at a moment with the true ones.
func (m *Model) diffAttributes(e store.Event, p moment) error {
	was := p.objects[e.Key]
	if was == nil || was.GetUID() != e.Object.GetUID() || number(was.GetResourceVersion()) > number(p.rv) || number(e.FirstRV) > number(p.rv) {
		return nil // another object, or not of the state of a reader at p
	}
	for _, spec := range []string{"", "v1", "v2"} {
		values, changed, known := e.AttributesAt(spec, p.rv)
		must := m.attributes != nil && m.attributes.Spec == spec && m.history.attributes.spec == spec && number(p.rv) >= m.history.attributes.since
		if must && !known {
			return fmt.Errorf("the attributes at %s are not known: %+v", p.rv, e.Attributes)
		}
		if !known {
			continue
		}
		x := attributesIndex(spec)
		if !changed {
			values = x.Values(e.Object)
		}
		if want := x.Values(was); spec == "" || !slices.Equal(values, want) {
			return fmt.Errorf("the attributes at %s are %q (changed: %v), want %q: %+v", p.rv, values, changed, want, e.Attributes)
		}
	}
	return nil
}

// attributesAt returns a line for each event since rv: the values of its object before, or "same",
// or "unknown".
func attributesAt(t *testing.T, s *subject, since string) []string {
	v := s.view(t)
	defer v.Close()
	var lines []string
	for e, err := range v.Changes(since) {
		require.NoError(t, err)
		values, changed, known := e.AttributesAt("v1", since)
		line := "same"
		switch {
		case !known:
			line = "unknown"
		case changed:
			line = fmt.Sprint(values)
		}
		lines = append(lines, e.RV+" "+line)
	}
	return lines
}

var attributesRules = []rule{
	{name: "of the time before each change", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), attributesIndex("v1"))
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "a")), Put(cm("shop", "y", 7)))
		s.apply(t, goesOn(12), Put(cm("shop", "x", 11, "app", "b")), Put(cm("shop", "y", 12, "tags", "t")))
		s.apply(t, goesOn(14), Put(cm("shop", "x", 13, "app", "b")), Put(cm("shop", "y", 14)))
		s.apply(t, goesOn(16), Put(cm("shop", "x", 16, "app", "a")), deletedAt("shop/y", "15"))
		for _, tc := range []struct {
			since string
			want  []string
		}{
			{"10", []string{"15 []", "16 [v1:app=a]"}},
			{"11", []string{"15 []", "16 [v1:app=b]"}},
			{"12", []string{"15 [v1:tags=t]", "16 [v1:app=b]"}},
			{"14", []string{"15 same", "16 [v1:app=b]"}},
			{"15", []string{"16 [v1:app=b]"}},
		} {
			require.Equal(t, tc.want, attributesAt(t, s, tc.since), tc.since)
		}
		s.check(t)
	}},
	{name: "of the object that was deleted, and not of the next one", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), attributesIndex("v1"))
		next := func(rv int, app string) store.Change {
			return Put(Object("shop", "x", "u2", strconv.Itoa(rv), map[string]string{"app": app}, ""))
		}
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "a")))
		s.apply(t, goesOn(11), Put(cm("shop", "x", 11, "app", "b")))
		s.apply(t, goesOn(20), next(20, "c"))
		require.Equal(t, []string{"19 [v1:app=a]", "20 same"}, attributesAt(t, s, "10"))
		s.apply(t, goesOn(30), next(30, "d"))
		require.Equal(t, []string{"19 [v1:app=a]", "30 [v1:app=c]"}, attributesAt(t, s, "10"))
		require.Equal(t, []string{"30 [v1:app=c]"}, attributesAt(t, s, "20"))
		s.check(t)
	}},
	{name: "of what a list changes", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), attributesIndex("v1"))
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "a")), Put(cm("shop", "y", 5, "app", "a")), Put(cm("shop", "z", 6, "app", "a")))
		s.apply(t, goesOn(12), Put(cm("shop", "x", 12, "app", "b")))
		s.replace(t, goesOn(20), Put(cm("shop", "x", 18, "app", "c")), Put(cm("shop", "y", 19, "app", "a")), Delete("shop/z"))
		require.Equal(t, []string{"13 same", "18 [v1:app=a]", "19 same"}, attributesAt(t, s, "10"))
		require.Equal(t, []string{"13 same", "18 [v1:app=b]", "19 same"}, attributesAt(t, s, "12"))
		s.check(t)
	}},
	{name: "unknown before the index", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "a")))
		s.apply(t, goesOn(12), Put(cm("shop", "x", 12, "app", "b")))
		s.open(t, s.want, attributesIndex("v1"))
		require.Equal(t, []string{"12 unknown"}, attributesAt(t, s, "10"))
		s.apply(t, goesOn(14), Put(cm("shop", "x", 14, "app", "c")))
		require.Equal(t, []string{"14 unknown"}, attributesAt(t, s, "10"))
		require.Equal(t, []string{"14 [v1:app=b]"}, attributesAt(t, s, "12"))
		for i, other := range [][]store.Index{{attributesIndex("v2")}, nil} {
			s.open(t, s.want, other...)
			s.apply(t, goesOn(16+4*i), Put(cm("shop", "x", 16+4*i, "app", "d")))
			s.open(t, s.want, attributesIndex("v1"))
			s.apply(t, goesOn(18+4*i), Put(cm("shop", "x", 18+4*i, "app", "e")))
			require.Equal(t, []string{strconv.Itoa(18+4*i) + " unknown"}, attributesAt(t, s, "14"))
			require.Equal(t, []string{strconv.Itoa(18+4*i) + " [v1:app=d]"}, attributesAt(t, s, strconv.Itoa(16+4*i)))
		}
		s.check(t)
	}},
	{name: "recorded only while the index is open", run: func(t *testing.T, h Harness) {
		wanted, kept, called := false, false, 0
		x := attributesIndex("v1")
		values := x.Func
		x.Func = func(o *object.Object) []string { called++; return values(o) }
		x.Wanted = func(keeps bool) bool { kept = keeps; return wanted }
		s := newSubject(t, h, Info("a"), x)
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "a")))
		s.apply(t, goesOn(12), Put(cm("shop", "x", 12, "app", "b")))
		s.replace(t, goesOn(13), Put(cm("shop", "x", 12, "app", "b")), Put(cm("shop", "y", 13, "app", "a")))
		require.Zero(t, called, "a program pays for what it wants")
		wanted = true
		s.apply(t, goesOn(14), Put(cm("shop", "x", 14, "app", "c")))
		require.False(t, kept)
		s.apply(t, goesOn(15), Put(cm("shop", "y", 15, "app", "b")))
		require.True(t, kept)
		require.Equal(t, []string{"14 unknown", "15 unknown"}, attributesAt(t, s, "12"))
		require.Equal(t, []string{"14 [v1:app=b]", "15 [v1:app=a]"}, attributesAt(t, s, "13"))
		wanted, called = false, 0
		s.apply(t, goesOn(16), Put(cm("shop", "x", 16, "app", "d")))
		require.Zero(t, called)
		require.Equal(t, []string{"15 unknown", "16 unknown"}, attributesAt(t, s, "14"))
		wanted = true
		s.replace(t, goesOn(20), Put(cm("shop", "x", 18, "app", "e")), Put(cm("shop", "y", 15, "app", "b")))
		require.Equal(t, []string{"18 unknown"}, attributesAt(t, s, "15"))
		require.Equal(t, []string{"18 [v1:app=d]"}, attributesAt(t, s, "16"))
	}},
	{name: "recorded from a list on", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "a")))
		s.apply(t, goesOn(12), Put(cm("shop", "x", 12, "app", "b")))
		s.apply(t, none, Put(cm("shop", "y", 14, "app", "b"))) // past the checkpoint
		s.open(t, s.want, attributesIndex("v1"))
		s.replace(t, goesOn(20), Put(cm("shop", "x", 18, "app", "c")))
		require.Equal(t, []string{"14 unknown", "18 unknown"}, attributesAt(t, s, "10"))
		require.Equal(t, []string{"14 unknown", "18 unknown"}, attributesAt(t, s, "13"))
		require.Equal(t, []string{"18 [v1:app=b]"}, attributesAt(t, s, "14"))
		s.check(t)
	}},
	{name: "unknown after the checkpoint went back", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), attributesIndex("v1"))
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "a")))
		s.apply(t, goesOn(20), Put(cm("shop", "x", 19, "app", "b")))
		s.apply(t, goesOn(15), Put(cm("shop", "y", 15)))
		require.Equal(t, []string{"19 unknown"}, attributesAt(t, s, "15"))
		s.apply(t, goesOn(21), Put(cm("shop", "x", 21, "app", "c")))
		require.Equal(t, []string{"21 unknown"}, attributesAt(t, s, "15"))
		require.Equal(t, []string{"21 [v1:app=b]"}, attributesAt(t, s, "19"))
	}},
	{name: "of the newest 32 changes of an object", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), attributesIndex("v1"))
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "4")))
		for rv := 11; rv <= 50; rv++ {
			s.apply(t, goesOn(rv), Put(cm("shop", "x", rv, "app", strconv.Itoa(rv))))
		}
		require.Equal(t, []string{"50 unknown"}, attributesAt(t, s, "17"))
		require.Equal(t, []string{"50 [v1:app=18]"}, attributesAt(t, s, "18"))
		require.Equal(t, []string{"50 [v1:app=49]"}, attributesAt(t, s, "49"))
	}},
	{name: "it is no index for readers, and there is one at most", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"), attributesIndex("v1"))
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "a")))
		s.check(t)
		require.NoError(t, diffRefused(s.view(t), "attributes", store.ErrNoIndex))
		second := attributesIndex("v1")
		second.Name = "second"
		_, err := h.DB().Open(Info("b"), attributesIndex("v1"), second)
		require.ErrorContains(t, err, `index "second": "attributes" is the one of the history`)
		second.Spec = ""
		_, err = h.DB().Open(Info("b"), second)
		require.ErrorContains(t, err, "no spec")
	}},
	{name: "are durable", durable: true, run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), attributesIndex("v1"))
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4, "app", "a")))
		for rv := 11; rv < 20; rv++ {
			s.apply(t, goesOn(rv), Put(cm("shop", "x", rv, "app", strconv.Itoa(rv))))
			s.reopen(t)
			require.Equal(t, []string{strconv.Itoa(rv) + " [v1:app=a]"}, attributesAt(t, s, "10"))
		}
		s.check(t)
	}},
}
