package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// description returns a description with every field set.
func description(singular string) store.Description {
	return store.Description{
		Singular: singular, ShortNames: []string{"cm"}, Categories: []string{"all"}, Subresources: []string{"status"},
		Custom: true, Columns: []store.Column{{Name: "Size", Type: "integer", Priority: 1, JSONPath: ".spec.size"}}, SelectableFields: []string{".spec.size"},
	}
}

// requireDescribed requires that a collection has a description, by each way to view it.
func requireDescribed(t *testing.T, s *subject, want store.Description) {
	t.Helper()
	v := s.view(t)
	defer v.Close()
	w, err := s.h.DB().View(s.model.Info.ID)
	require.NoError(t, err)
	defer w.Close()
	for _, v := range []store.View{v, w} {
		got, err := v.Description()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	s.check(t)
}

var describeRules = []rule{
	{name: "the newest description is read, and no other write removes it", run: func(t *testing.T, h Harness) {
		other := newSubject(t, h, Info("b"))
		s := newSubject(t, h, Info("a"))
		requireDescribed(t, s, store.Description{})
		require.NoError(t, s.coll.Describe(description("one")))
		requireDescribed(t, s, description("one"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		s.apply(t, Checkpoint(2), Put(cm("shop", "x", 2)))
		requireDescribed(t, s, description("one"))
		old := s.view(t)
		r := s.begin(t)
		require.NoError(t, r.Apply([]store.Change{Delete("shop/x")}))
		require.NoError(t, s.coll.Describe(description("two")), "beside a replacement")
		requireDescribed(t, s, description("two"))
		s.commit(t, r, Checkpoint(3), Delete("shop/x"))
		requireDescribed(t, s, description("two"))
		got, err := old.Description()
		require.NoError(t, err)
		require.Equal(t, description("one"), got, "of a view from before")
		s.open(t, scoped("a", "version"))
		s.replace(t, Checkpoint(4), Put(cm("shop", "x", 4)))
		requireDescribed(t, s, description("two"))
		require.NoError(t, s.coll.Describe(store.Description{}))
		requireDescribed(t, s, store.Description{})
		requireDescribed(t, other, store.Description{})
	}},
	{name: "Drop deletes the description", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		require.NoError(t, s.coll.Describe(description("one")))
		v := s.view(t)
		v.Close()
		_, err := v.Description()
		require.ErrorIs(t, err, store.ErrClosed)
		require.NoError(t, h.DB().Drop("a"))
		require.ErrorIs(t, s.coll.Describe(description("two")), store.ErrNoCollection)
		requireDescribed(t, newSubject(t, h, Info("a")), store.Description{})
	}},
	{name: "is durable", durable: true, run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		require.NoError(t, s.coll.Describe(description("one")))
		for range 2 {
			s.reopen(t)
			requireDescribed(t, s, description("one"))
		}
	}},
}
