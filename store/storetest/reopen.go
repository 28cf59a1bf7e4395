package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

var reopenRules = []rule{
	{name: "content, indexes and checkpoint are durable", durable: true, run: func(t *testing.T, h Harness) {
		app := store.LabelIndex("app", "app")
		a, b := newSubject(t, h, Info("pods"), app, tagIndex()), newSubject(t, h, Info("pods@shop"))
		empty, never := newSubject(t, h, Info("empty")), newSubject(t, h, Info("never"))
		a.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till", "tags", "a b")), Put(cm("shop", "y", 1, "app", "door")))
		b.replace(t, Checkpoint(2), Put(cm("shop", "x", 2)))
		empty.replace(t, Checkpoint(3))
		never.apply(t, Checkpoint(4), Put(cm("shop", "x", 4)))
		all := []*subject{a, b, empty, never}
		for i := range 3 {
			h.Reopen(t)
			for _, s := range all {
				s.coll = nil
				s.check(t) // through DB.View, without index functions
			}
			for _, s := range all {
				s.open(t, s.want, s.model.Indexes...)
				s.check(t)
			}
			a.apply(t, Checkpoint(10+i), Put(cm("shop", "x", 10+i, "app", "door")), Delete("shop/y"), Put(cm("shop", "z", 10+i, "tags", "c")))
			a.check(t)
		}
		require.True(t, empty.coll.State().Synced)
		require.False(t, never.coll.State().Synced)
		infos, err := h.DB().Collections()
		require.NoError(t, err)
		require.Equal(t, []store.Info{Info("empty"), Info("never"), Info("pods"), Info("pods@shop")}, infos)
	}},
	{name: "an uncommitted replacement is discarded", durable: true, run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")))
		r := s.begin(t)
		require.NoError(t, r.Apply([]store.Change{Delete("shop/x"), Put(cm("shop", "y", 2, "app", "till"))}))
		s.reopen(t)
		s.check(t)
		s.replace(t, Checkpoint(3), Put(cm("shop", "z", 3, "app", "till")))
		s.check(t)
	}},
	{name: "a scope change is durable", durable: true, run: func(t *testing.T, h Harness) {
		other := scoped("a", "label selector")
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		s.open(t, other)
		s.reopen(t)
		require.Equal(t, Info("a"), s.coll.Info(), "not replaced yet")
		s.check(t)
		s.replace(t, Checkpoint(2), Put(cm("shop", "y", 2)))
		s.reopen(t)
		require.Equal(t, other, s.coll.Info())
		s.check(t)
	}},
	{name: "indexes change over a reopening", durable: true, run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till", "tier", "front")), Put(cm("shop", "y", 1, "app", "door")))
		for i, indexes := range [][]store.Index{
			{store.LabelIndex("app", "tier")},
			{},
			{store.LabelIndex("app", "app"), store.LabelIndex("tier", "tier")},
			{store.LabelIndex("tier", "tier")},
		} {
			h.Reopen(t)
			s.open(t, Info("a"), indexes...)
			s.check(t)
			s.apply(t, Checkpoint(i+2), Put(cm("shop", "y", i+2, "tier", "back")))
			s.check(t)
			s.settle(t)
			s.check(t)
		}
		s.reopen(t)
		s.check(t)
	}},
	{name: "Drop is durable", durable: true, run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		require.NoError(t, h.DB().Drop("a"))
		h.Reopen(t)
		_, err := h.DB().View("a")
		require.ErrorIs(t, err, store.ErrNoCollection)
		s = newSubject(t, h, Info("a"))
		s.check(t)
	}},
}
