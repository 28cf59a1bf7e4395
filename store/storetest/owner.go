package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// wrapped is a store that a program has put into a type of its own.
type wrapped struct{ store.DB }

// ownerRules are the rules of a collection that is opened by two callers.
var ownerRules = []rule{
	{name: "an open collection has one owner", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		for name, db := range map[string]store.DB{"the same store": h.DB(), "a wrapper": wrapped{h.DB()}, "another wrapper": &wrapped{h.DB()}} {
			other := scoped("a", "label selector")
			_, err := db.Open(other, store.LabelIndex("app", "app"))
			require.ErrorIs(t, err, store.ErrInUse, name)
			var inUse *store.InUseError
			require.ErrorAs(t, err, &inUse)
			require.Same(t, db.Owner("a"), inUse.Owner)
			require.Equal(t, Info("a"), inUse.Owner.Info())
			require.NoError(t, inUse.Owner.Err())
			for _, text := range []string{"collection a in ", db.Stats().Path, "Collection.Close", "DB.View", "LabelSelector:app=till"} {
				require.ErrorContains(t, err, text)
			}
		}
		require.Nil(t, h.DB().Owner("absent"))
		s.apply(t, Checkpoint(2), Put(cm("shop", "y", 2)))
		s.check(t) // also through DB.View, which needs no ownership
	}},
	{name: "two lists at once", run: testTwoLists},
	{name: "the next owner goes on where the last ended", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")))
		s.settle(t)
		v, before, owner, last := s.view(t), s.model.Clone(), h.DB().Owner("a"), s.coll
		s.close(t)
		<-owner.Done()
		require.ErrorIs(t, owner.Err(), store.ErrClosed)
		require.Nil(t, h.DB().Owner("a"))
		before.Equal(t, v)
		v.Close()
		s.settle(t)
		s.check(t) // through DB.View

		s.open(t, Info("a"), store.LabelIndex("app", "app"))
		s.apply(t, Checkpoint(2), Put(cm("shop", "y", 2, "app", "till")))
		requireEnded(t, last, store.ErrClosed)
		require.NoError(t, last.Close(), "a second Close takes nothing from the next owner")
		s.apply(t, Checkpoint(3), Put(cm("shop", "z", 3)))
		s.check(t)
	}},
	{name: "Close aborts a replacement", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		r := s.begin(t)
		require.NoError(t, r.Apply(large("r", 2)))
		s.close(t)
		s.check(t)
		s.open(t, Info("a"))
		next := s.begin(t)
		list := large("next", 3)
		require.NoError(t, next.Apply(list))
		require.True(t, isEnded(r))
		require.NoError(t, r.Abort())
		s.commit(t, next, Checkpoint(3), list...)
		s.check(t)
	}},
	{name: "Drop ends the ownership", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		r := s.begin(t)
		require.NoError(t, r.Apply(large("r", 2)))
		owner := h.DB().Owner("a")
		require.NoError(t, h.DB().Drop("a"))
		<-owner.Done()
		require.ErrorIs(t, owner.Err(), store.ErrNoCollection)

		next := newSubject(t, h, Info("a"))
		next.replace(t, Checkpoint(3), large("next", 3)...)
		requireEnded(t, s.coll, store.ErrNoCollection)
		require.True(t, isEnded(r))
		require.NoError(t, s.coll.Close())
		next.apply(t, Checkpoint(4), Put(cm("shop", "y", 4)))
		next.check(t)
	}},
	{name: "Reopen keeps the owner", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")))
		owner, other := h.DB().Owner("a"), scoped("a", "transform")
		r := s.begin(t)
		require.ErrorIs(t, s.coll.Reopen(other), store.ErrReplacing)
		require.NoError(t, r.Abort())
		require.Error(t, s.coll.Reopen(Info("b")), "another collection")
		s.check(t)
		s.open(t, other)
		require.Same(t, owner, h.DB().Owner("a"))
		require.Equal(t, other, owner.Info())
		s.check(t)
	}},
}

// requireEnded requires that all methods of a collection that is no longer open return want.
func requireEnded(t *testing.T, c store.Collection, want error) {
	t.Helper()
	_, errView := c.View()
	_, errHeader := c.Header("shop/x")
	_, errLookup := c.Lookup().Get("shop/x")
	_, errReplace := c.Replace()
	for name, err := range map[string]error{
		"View": errView, "Header": errHeader, "Lookup": errLookup, "Replace": errReplace,
		"Apply":    c.Apply(store.Batch{Changes: []store.Change{Delete("shop/x")}, Checkpoint: Checkpoint(99)}),
		"Describe": c.Describe(store.Description{}), "Reopen": c.Reopen(c.Info()),
	} {
		require.ErrorIs(t, err, want, name)
	}
}

// large returns changes that are too many for the memory that a store takes for a replacement.
func large(name string, rv int) (changes []store.Change) {
	for i := range 20 {
		changes = append(changes, Put(cm("n", name+string(rune('a'+i)), rv)))
	}
	return changes
}

// testTwoLists makes two lists of one collection for two callers that don't know of each other. Without
// owners, the second spoils the new generation of the first, and Abort drops the content that Commit made visible.
func testTwoLists(t *testing.T, h Harness) {
	s := newSubject(t, h, Info("a"))
	s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
	r1 := s.begin(t)
	first := large("first", 2)
	require.NoError(t, r1.Apply(first))
	for _, db := range []store.DB{h.DB(), wrapped{h.DB()}} {
		_, err := db.Open(Info("a"))
		require.ErrorIs(t, err, store.ErrInUse)
	}
	s.commit(t, r1, Checkpoint(10), first...)
	s.check(t)
}
