package access

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// rulesOf returns the rules of a store that holds RBAC objects, and a function that changes them.
func rulesOf(t testing.TB) (*Rules, func(resource string, rv string, raw ...string)) {
	t.Helper()
	db := memory.New()
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	collections := map[string]store.Collection{}
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		c, err := db.Open(store.Info{ID: resource, Group: rbacv1.GroupName, Version: "v1", Resource: resource})
		require.NoError(t, err)
		collections[resource] = c
	}
	versions := map[string]int64{}
	source := func(resource string) Source {
		c := collections[resource]
		return func() Version {
			if !c.State().Synced {
				return Version{}
			}
			return Version{Of: c, Changes: versions[resource]}
		}
	}
	r := &Rules{ClusterRoles: source("clusterroles"), ClusterRoleBindings: source("clusterrolebindings"), Roles: source("roles"), RoleBindings: source("rolebindings")}
	return r, func(resource, rv string, raw ...string) {
		list, err := collections[resource].Replace()
		require.NoError(t, err)
		var changes []store.Change
		v, err := collections[resource].View()
		require.NoError(t, err)
		for h, err := range v.Headers("", "") {
			require.NoError(t, err)
			changes = append(changes, store.Change{Key: h.Key})
		}
		v.Close()
		require.NoError(t, list.Apply(changes))
		changes = nil
		for _, x := range raw {
			o, err := object.Parse([]byte(x))
			require.NoError(t, err)
			changes = append(changes, store.Change{Key: o.Key(), Object: o})
		}
		require.NoError(t, list.Apply(changes))
		require.NoError(t, list.Commit(store.Checkpoint{RV: rv}))
		versions[resource]++
	}
}

func rbacObject(t testing.TB, kind, namespace, name string, fields map[string]any) string {
	t.Helper()
	fields["apiVersion"], fields["kind"] = "rbac.authorization.k8s.io/v1", kind
	fields["metadata"] = map[string]any{"namespace": namespace, "name": name, "resourceVersion": "1", "uid": "u"}
	raw, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(raw)
}

func TestRules(t *testing.T) {
	r, set := rulesOf(t)
	role := func(kind, namespace, name string, rules ...rbacv1.PolicyRule) string {
		return rbacObject(t, kind, namespace, name, map[string]any{"rules": rules})
	}
	bind := func(kind, namespace, name, ref, to string, subjects ...rbacv1.Subject) string {
		return rbacObject(t, kind, namespace, name, map[string]any{"roleRef": rbacv1.RoleRef{Kind: ref, Name: to}, "subjects": subjects})
	}
	user := rbacv1.Subject{Kind: "User", Name: "alice"}
	group := rbacv1.Subject{Kind: "Group", Name: "staff"}
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "shop", Name: "till"}
	own := rbacv1.Subject{Kind: "ServiceAccount", Name: "till"}
	read := []string{"get", "list", "watch"}

	spec := func(user string, groups []string, a authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &a}
	}
	require.False(t, r.allow(spec("alice", nil, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"})), "nothing is cached")
	set("clusterroles", "5",
		role("ClusterRole", "", "reader", rbacv1.PolicyRule{Verbs: read, APIGroups: []string{""}, Resources: []string{"pods", "pods/log", "*/status"}}),
		role("ClusterRole", "", "one", rbacv1.PolicyRule{Verbs: read, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"a"}}),
		role("ClusterRole", "", "all", rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}),
		role("ClusterRole", "", "paths", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/version", "/openapi/*"}}))
	set("roles", "6", role("Role", "shop", "reader", rbacv1.PolicyRule{Verbs: read, APIGroups: []string{"apps"}, Resources: []string{"*"}}))
	set("clusterrolebindings", "7",
		bind("ClusterRoleBinding", "", "1", "ClusterRole", "reader", user, own),
		bind("ClusterRoleBinding", "", "2", "ClusterRole", "one", group),
		bind("ClusterRoleBinding", "", "3", "ClusterRole", "paths", user),
		bind("ClusterRoleBinding", "", "4", "ClusterRole", "missing", user))
	require.False(t, r.allow(spec("alice", nil, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"})), "not all is cached")
	set("rolebindings", "8",
		bind("RoleBinding", "shop", "1", "Role", "reader", account),
		bind("RoleBinding", "office", "2", "ClusterRole", "all", own))

	const till, other = "system:serviceaccount:shop:till", "system:serviceaccount:office:till"
	for _, tc := range []struct {
		name   string
		user   string
		groups []string
		a      authorizationv1.ResourceAttributes
		want   bool
	}{
		{"cluster role", "alice", nil, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}, true},
		{"in a namespace", "alice", nil, authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "x", Name: "y"}, true},
		{"another user", "bob", nil, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}, false},
		{"another verb", "alice", nil, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods"}, false},
		{"another group", "alice", nil, authorizationv1.ResourceAttributes{Verb: "list", Group: "metrics.k8s.io", Resource: "pods"}, false},
		{"a subresource", "alice", nil, authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "log"}, true},
		{"any status", "alice", nil, authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "status"}, true},
		{"another subresource", "alice", nil, authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "exec"}, false},
		{"a group's name", "staff", nil, authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Name: "a"}, false},
		{"one name", "x", []string{"staff"}, authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Name: "a"}, true},
		{"another name", "x", []string{"staff"}, authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Name: "b"}, false},
		{"all names", "x", []string{"staff"}, authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps"}, false},
		{"a role", till, nil, authorizationv1.ResourceAttributes{Verb: "list", Group: "apps", Resource: "deployments", Namespace: "shop"}, true},
		{"a role elsewhere", till, nil, authorizationv1.ResourceAttributes{Verb: "list", Group: "apps", Resource: "deployments", Namespace: "office"}, false},
		{"a role everywhere", till, nil, authorizationv1.ResourceAttributes{Verb: "list", Group: "apps", Resource: "deployments"}, false},
		{"of the binding's namespace", other, nil, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "secrets", Namespace: "office"}, true},
		{"in no namespace", other, nil, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, r.allow(spec(tc.user, tc.groups, tc.a))) })
	}
	for _, c := range []struct {
		path string
		want bool
	}{{"/version", true}, {"/openapi/v3", true}, {"/openapi", false}, {"/versions", false}, {"/metrics", false}} {
		require.Equal(t, c.want, r.allow(authorizationv1.SubjectAccessReviewSpec{
			User: "alice", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: c.path},
		}), c.path)
	}

	set("clusterrolebindings", "9")
	require.False(t, r.allow(spec("alice", nil, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"})), "a binding that was withdrawn")
}

// TestRulesAndDecisions: what RBAC objects have allowed ends with them, also without the server; what
// the server has allowed for other reasons is remembered.
func TestRulesAndDecisions(t *testing.T) {
	r, set := rulesOf(t)
	db := memory.New()
	defer db.Close()
	x := newDesk(openDecisions(t, db))
	x.opts.Rules = r
	set("clusterroles", "1", rbacObject(t, "ClusterRole", "", "r", map[string]any{"rules": []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods", "nodes"}}}}))
	set("clusterrolebindings", "2", rbacObject(t, "ClusterRoleBinding", "", "b", map[string]any{"roleRef": rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, "subjects": []rbacv1.Subject{{Kind: "User", Name: "alice"}}}))
	set("roles", "3")
	set("rolebindings", "4")
	x.connected = true
	x.server["alice list pods"], x.server["alice list leases"] = true, true
	require.True(t, x.may("alice", "list", "pods"))
	require.True(t, x.may("alice", "list", "leases"))
	require.False(t, x.may("alice", "list", "nodes"), "the server knows better")

	x.connected = false
	require.True(t, x.may("alice", "list", "pods"))
	require.True(t, x.may("alice", "list", "leases"), "by something else than RBAC")
	require.True(t, x.may("alice", "list", "nodes"), "the rules decide without the server")
	set("clusterrolebindings", "5")
	require.False(t, x.may("alice", "list", "pods"), "the binding was withdrawn")
	require.True(t, x.may("alice", "list", "leases"))

	x.connected = true
	x.server["alice list pods"] = false
	require.False(t, x.may("alice", "list", "pods"))
	x.server["alice list pods"] = true
	require.False(t, x.may("alice", "list", "pods"), "a minute has not passed")
	set("clusterrolebindings", "6")
	require.True(t, x.may("alice", "list", "pods"), "the rules have changed: the server is asked again")
}

// TestDecisionFromUncachedBinding: what RBAC objects have allowed that the cache did not have at that time
// ends with them too: the caller does not ask again before the server is away.
func TestDecisionFromUncachedBinding(t *testing.T) {
	for _, synced := range []bool{true, false} {
		t.Run(fmt.Sprintf("synced %v", synced), func(t *testing.T) {
			r, set := rulesOf(t)
			db := memory.New()
			defer db.Close()
			x := newDesk(openDecisions(t, db))
			x.opts.Rules, x.connected = r, true
			fill := func() {
				for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
					set(resource, "1")
				}
			}
			if synced {
				fill()
			}
			x.server["alice list pods"], x.server["alice list leases"] = true, true
			x.reason = `RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "alice"`
			require.True(t, x.may("alice", "list", "pods"))
			x.reason = ""
			require.True(t, x.may("alice", "list", "leases"))
			if !synced {
				x.connected = false
				require.True(t, x.may("alice", "list", "pods"), "nothing else is known")
				fill()
			}
			x.connected = false
			require.False(t, x.may("alice", "list", "pods"))
			require.True(t, x.may("alice", "list", "leases"), "by something else than RBAC")
		})
	}
}
