package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// scopes are the changes of an Info after which a collection has another scope.
var scopes = []struct {
	name   string
	change func(*store.Info)
}{
	{"version", func(i *store.Info) { i.Version = "v2" }},
	{"group", func(i *store.Info) { i.Group = "example.com" }},
	{"resource", func(i *store.Info) { i.Resource = "secrets" }},
	{"namespace", func(i *store.Info) { i.Namespace = "shop" }},
	{"label selector", func(i *store.Info) { i.LabelSelector = "app=till" }},
	{"field selector", func(i *store.Info) { i.FieldSelector = "spec.nodeName=edge-1" }},
	{"transform", func(i *store.Info) { i.Transform = "drop:metadata.managedFields" }},
}

// scoped returns the identity under an ID with another scope, by its name.
func scoped(id, scope string) store.Info {
	info := Info(id)
	for _, s := range scopes {
		if s.name == scope {
			s.change(&info)
		}
	}
	return info
}

var openRules = []rule{
	{name: "opening again changes nothing", run: func(t *testing.T, h Harness) {
		x := store.LabelIndex("app", "app")
		s := newSubject(t, h, Info("a"), x)
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")))
		s.open(t, Info("a"), x)
		s.check(t)
		s.apply(t, Checkpoint(2), Put(cm("shop", "y", 2, "app", "till")))
		s.check(t)
	}},
	{name: "another scope keeps a synced collection until a commit", run: func(t *testing.T, h Harness) {
		for _, scope := range scopes {
			t.Run(scope.name, func(t *testing.T) {
				info := scoped("a", scope.name)
				s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
				s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")))
				s.open(t, info, store.LabelIndex("app", "app"))
				require.Equal(t, Info("a"), s.coll.Info())
				require.True(t, s.coll.State().Synced)
				s.check(t)

				r := s.begin(t)
				require.NoError(t, r.Apply([]store.Change{Put(cm("shop", "y", 2))}))
				s.check(t)
				require.NoError(t, r.Abort())
				s.check(t)

				before, v := s.model.Clone(), s.view(t)
				s.replace(t, Checkpoint(2), Put(cm("shop", "y", 2, "app", "till")), Delete("shop/x"))
				require.Equal(t, info, s.coll.Info())
				s.check(t)
				before.Equal(t, v)
				v.Close()
				require.NoError(t, h.DB().Drop("a"))
			})
		}
	}},
	{name: "another scope empties a collection that never was synced", run: func(t *testing.T, h Harness) {
		for _, scope := range scopes {
			t.Run(scope.name, func(t *testing.T) {
				info := scoped("a", scope.name)
				s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
				s.apply(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")))
				before, v := s.model.Clone(), s.view(t)
				s.open(t, info, store.LabelIndex("app", "app"))
				require.Equal(t, info, s.coll.Info())
				require.Equal(t, store.State{}, s.coll.State())
				s.check(t)
				before.Equal(t, v)
				v.Close()
				require.NoError(t, h.DB().Drop("a"))
			})
		}
	}},
	{name: "going back to the stored scope needs no replacement", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		s.open(t, scoped("a", "namespace"))
		s.open(t, Info("a"))
		s.apply(t, Checkpoint(2), Put(cm("shop", "y", 2)))
		s.check(t)
		s.replace(t, Checkpoint(3))
		require.Equal(t, Info("a"), s.coll.Info())
		s.check(t)
	}},
	{name: "indexes are built on Open", run: testIndexChanges},
	{name: "indexes change under a pending scope", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till", "tier", "front")))
		s.open(t, scoped("a", "transform"), store.LabelIndex("tier", "tier"))
		s.check(t)
		s.replace(t, Checkpoint(2), Put(cm("shop", "y", 2, "tier", "back")))
		s.check(t)
	}},
	{name: "Collections returns the stored collections, sorted by ID", run: func(t *testing.T, h Harness) {
		infos, err := h.DB().Collections()
		require.NoError(t, err)
		require.Empty(t, infos)
		for _, id := range []string{"pods@shop", "pods", "deployments.apps"} {
			s := newSubject(t, h, Info(id))
			s.replace(t, Checkpoint(1))
			s.close(t)
		}
		_, err = h.DB().Open(scoped("pods", "version"))
		require.NoError(t, err)
		infos, err = h.DB().Collections()
		require.NoError(t, err)
		require.Equal(t, []store.Info{Info("deployments.apps"), Info("pods"), Info("pods@shop")}, infos)
	}},
	{name: "Drop deletes a collection", run: func(t *testing.T, h Harness) {
		s, other := newSubject(t, h, Info("pods"), store.LabelIndex("app", "app")), newSubject(t, h, Info("pods@shop"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")))
		other.replace(t, Checkpoint(2), Put(cm("shop", "x", 2)))
		require.NoError(t, h.DB().Drop("pods"))
		_, err := h.DB().View("pods")
		require.ErrorIs(t, err, store.ErrNoCollection)
		infos, err := h.DB().Collections()
		require.NoError(t, err)
		require.Equal(t, []store.Info{Info("pods@shop")}, infos)
		other.check(t)

		s = newSubject(t, h, Info("pods"), store.LabelIndex("app", "app"))
		require.Equal(t, store.State{}, s.coll.State())
		s.check(t)
		s.replace(t, Checkpoint(3), Put(cm("shop", "y", 3, "app", "till")))
		s.check(t)
		other.check(t)
	}},
	{name: "an absent collection is ErrNoCollection", run: func(t *testing.T, h Harness) {
		_, err := h.DB().View("absent")
		require.ErrorIs(t, err, store.ErrNoCollection)
		dropAbsent(t, h, "absent")
	}},
}

// dropAbsent drops a collection that does not exist; a store may return nil or ErrNoCollection.
func dropAbsent(t T, h Harness, id string) {
	t.Helper()
	if err := h.DB().Drop(id); err != nil {
		require.ErrorIs(t, err, store.ErrNoCollection)
	}
}

func testIndexChanges(t *testing.T, h Harness) {
	app, tier := store.LabelIndex("app", "app"), store.LabelIndex("tier", "tier")
	s := newSubject(t, h, Info("a"))
	s.replace(t, Checkpoint(1),
		Put(cm("shop", "x", 1, "app", "till", "tier", "front")),
		Put(cm("shop", "y", 1, "app", "door")),
		Put(cm("shop", "z", 1)))
	for i, indexes := range [][]store.Index{
		{app},
		{app, tier},
		{tier, app},
		{tier},
		{store.LabelIndex("app", "tier"), tier},
		{store.LabelIndex("app", "app"), store.FieldIndex("tier", "data.payload")},
		{},
		{app, tier},
	} {
		before, v := s.model.Clone(), s.view(t)
		s.open(t, Info("a"), indexes...)
		s.check(t)
		s.apply(t, Checkpoint(i+2), Put(cm("shop", "x", i+2, "app", "till", "tier", string(rune('a'+i)))))
		s.check(t)
		if i%2 == 0 {
			s.settle(t)
			s.check(t)
		}
		before.Equal(t, v)
	}
}
