package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

var syncRules = []rule{
	{name: "a new collection is not synced", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		require.Equal(t, store.State{}, s.coll.State())
		s.check(t)
	}},
	{name: "Apply does not make a collection synced", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.apply(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		require.False(t, s.coll.State().Synced)
		s.check(t)
	}},
	{name: "an empty list makes a collection synced and empty", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1))
		require.True(t, s.coll.State().Synced)
		require.Zero(t, s.coll.State().Count)
		s.check(t)
	}},
	{name: "deleting every object leaves a collection synced", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		s.apply(t, Checkpoint(2), Delete("shop/x"))
		require.True(t, s.coll.State().Synced)
		require.Zero(t, s.coll.State().Bytes)
		s.check(t)
	}},
}

var applyRules = []rule{
	{name: "put, update and delete", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		x, x2, y := cm("shop", "x", 1), Object("shop", "x", "u2", "9", nil, "a longer payload than before"), cm("", "y", 2)
		for _, tc := range []struct {
			name    string
			changes []store.Change
			count   int64
			bytes   int
		}{
			{"nothing", nil, 0, 0},
			{"put", []store.Change{Put(x)}, 1, x.Size()},
			{"put another", []store.Change{Put(y)}, 2, x.Size() + y.Size()},
			{"put again", []store.Change{Put(x)}, 2, x.Size() + y.Size()},
			{"update", []store.Change{Put(x2)}, 2, x2.Size() + y.Size()},
			{"delete what is absent", []store.Change{Delete("shop/absent"), Delete("shop")}, 2, x2.Size() + y.Size()},
			{"update and delete", []store.Change{Put(x), Delete("y")}, 1, x.Size()},
			{"delete again", []store.Change{Delete("y")}, 1, x.Size()},
			{"delete the last", []store.Change{Delete("shop/x")}, 0, 0},
		} {
			s.apply(t, Checkpoint(1), tc.changes...)
			s.check(t)
			require.Equal(t, tc.count, s.coll.State().Count, tc.name)
			require.EqualValues(t, tc.bytes, s.coll.State().Bytes, tc.name)
		}
	}},
	{name: "a zero checkpoint leaves the stored one", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.apply(t, Checkpoint(7), Put(cm("shop", "x", 7)))
		s.apply(t, none, Put(cm("shop", "y", 8)))
		require.Equal(t, "7", s.coll.State().RV)
		s.check(t)
		s.apply(t, Checkpoint(9))
		require.Equal(t, "9", s.coll.State().RV)
		s.check(t)
	}},
	{name: "a batch that fails leaves nothing", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")))
		err := s.coll.Apply(store.Batch{Checkpoint: Checkpoint(2), Changes: []store.Change{
			Put(cm("shop", "y", 2, "app", "till")),
			Delete("shop/x"),
			{Key: "", Object: cm("shop", "z", 2)},
		}})
		require.Error(t, err, "a change without a key")
		s.check(t)
		s.apply(t, Checkpoint(3), Put(cm("shop", "z", 3, "app", "till")))
		s.check(t)
	}},
	{name: "collections do not mix", run: func(t *testing.T, h Harness) {
		// The IDs are prefixes of each other, and the collections have the same keys.
		a, b := newSubject(t, h, Info("pods")), newSubject(t, h, Info("pods@shop"))
		a.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)), Put(cm("shop", "y", 1)))
		b.replace(t, Checkpoint(2), Put(cm("shop", "x", 2)))
		a.apply(t, Checkpoint(3), Delete("shop/x"))
		a.check(t)
		b.check(t)
	}},
	{name: "opaque resourceVersions and odd payloads", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		cp := Checkpoint(1)
		cp.RV = "not-a-number"
		s.replace(t, cp,
			Put(Object("shop", "opaque", "u", "also-none", nil, "")),
			Put(Object("shop", "none", "", "", nil, "")),
			Put(Object("shop", "zero", "u", "1", nil, "a\x00b\u2028\xff")),
			Put(Object("shop", "utf-8", "u", "99999999999999999999999999", map[string]string{"": ""}, "näh ✂")))
		s.check(t)
	}},
}
