package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/access"
)

// TestRulesChange: the server is asked again about a caller once a cached RBAC object has changed, in
// whatever way, and not for anything else, as the bookmarks that come each minute.
func TestRulesChange(t *testing.T) {
	const roles, bindings = "clusterroles." + rbac, "clusterrolebindings." + rbac
	for _, tc := range []struct {
		name   string
		change func(*world)
		asks   bool
	}{
		{"bookmark", func(w *world) {
			require.NoError(w.t, w.queues[bindings].Bookmark("200"))
			w.settle(bindings)
			require.Equal(w.t, "200", w.stored[bindings].State().RV)
		}, false},
		{"relist of the same", func(w *world) {
			w.list(bindings, "200", w.binding(1, account))
			require.Equal(w.t, "200", w.stored[bindings].State().RV)
		}, false},
		{"event of another collection", func(w *world) {
			require.NoError(w.t, w.queues["pods"].Add(w.objectOf("shop", "till-1", "p2", 101, nil)))
			w.settle("pods")
		}, false},
		{"creation", func(w *world) {
			require.NoError(w.t, w.queues["roles."+rbac].Add(w.objectOf("shop", "r", "r2", 101, nil)))
			w.settle("roles." + rbac)
		}, true},
		{"change", func(w *world) {
			require.NoError(w.t, w.queues[roles].Update(w.reader(101, "pods")))
			w.settle(roles)
		}, true},
		{"deletion", func(w *world) {
			require.NoError(w.t, w.queues[bindings].Delete(w.binding(101, account)))
			w.settle(bindings)
		}, true},
		{"relist with a change", func(w *world) { w.list(roles, "200", w.reader(150, "pods")) }, true},
		{"relist with a deletion", func(w *world) { w.list(bindings, "200") }, true},
		{"repair", func(w *world) { // of the same length, and without any other trace
			was := w.stored[roles].State()
			require.NoError(w.t, w.queues[roles].Correct("reader", w.reader(1, "jobs"), "100"))
			w.settle(roles)
			require.Equal(w.t, was, w.stored[roles].State())
		}, true},
		{"repair by a deletion", func(w *world) {
			require.NoError(w.t, w.queues[bindings].Correct("readers", nil, "100"))
			w.settle(bindings)
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.populate()
			for range 3 {
				require.True(t, w.may(account, "list", "pods"))
			}
			require.Equal(t, 1, w.times(accessReviews))
			tc.change(w)
			want := 1
			if tc.asks {
				want++
			}
			for range 3 {
				require.True(t, w.may(account, "list", "pods"))
			}
			require.Equal(t, want, w.times(accessReviews))
		})
	}
}

// TestRulesWithdrawnOffline: what a binding allows ends with it while the server is away, and what the
// rules allow is what is cached.
func TestRulesWithdrawnOffline(t *testing.T) {
	w := newWorld(t)
	w.populate()
	w.disconnect()
	require.True(t, w.may(account, "list", "pods"))
	require.False(t, w.may(account, "list", "nodes"))
	w.list("clusterrolebindings."+rbac, "200")
	w.disconnect()
	require.False(t, w.may(account, "list", "pods"))
}

// TestLookup: what is found of an object is what the cache has, after each change of it.
func TestLookup(t *testing.T) {
	w := newWorld(t)
	pods := schema.GroupResource{Resource: "pods"}
	check := func(want string, found access.Presence) {
		t.Helper()
		w.settle("pods")
		for range 2 {
			uid, p := w.x.lookup(pods, "shop", "till-0")
			require.Equal(t, found, p)
			require.Equal(t, want, uid)
		}
	}
	check("", access.Missing)
	require.NoError(t, w.queues["pods"].Add(w.objectOf("shop", "till-0", "p1", 101, nil)))
	check("p1", access.Present)
	require.NoError(t, w.queues["pods"].Delete(w.objectOf("shop", "till-0", "p1", 102, nil)))
	check("", access.Missing)
	require.NoError(t, w.queues["pods"].Add(w.objectOf("shop", "till-0", "p2", 103, nil)))
	check("p2", access.Present)
	require.NoError(t, w.queues["pods"].Bookmark("110"))
	check("p2", access.Present)
	w.list("pods", "200", w.objectOf("shop", "till-0", "p3", 150, nil))
	check("p3", access.Present)
	require.NoError(t, w.queues["pods"].Correct("shop/till-0", w.objectOf("shop", "till-0", "p4", 150, nil), "200"))
	check("p4", access.Present)
	w.list("pods", "300")
	check("", access.Missing)
	_, p := w.x.lookup(schema.GroupResource{Resource: "secrets"}, "shop", "till")
	require.Equal(t, access.Unknown, p)
}
