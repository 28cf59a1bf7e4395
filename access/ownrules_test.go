package access

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store/memory"
)

// TestOwnRules: the rules are those of the bindings to the user and its groups, everywhere or in the namespace, each
// once; a missing role is named, and the rules of a node are incomplete.
func TestOwnRules(t *testing.T) {
	r, set := rulesOf(t)
	x := newDesk(nil)
	x.opts.Rules = r
	rules := func(user, namespace string, groups ...string) authorizationv1.SubjectRulesReviewStatus {
		ctx := WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{Username: user, Groups: groups}})
		return x.OwnRules(ctx, namespace, nil)
	}
	require.True(t, rules("alice", "a").Incomplete, "nothing is cached")
	role := func(kind, namespace, name, resource string) string {
		return rbacObject(t, kind, namespace, name, map[string]any{"rules": []rbacv1.PolicyRule{
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{"x"}},
			{Verbs: []string{"get"}, NonResourceURLs: []string{"/" + resource}},
		}})
	}
	bind := func(kind, namespace, name, ref, to string, subjects ...rbacv1.Subject) string {
		return rbacObject(t, kind, namespace, name, map[string]any{"roleRef": rbacv1.RoleRef{Kind: ref, Name: to}, "subjects": subjects})
	}
	alice, admins := rbacv1.Subject{Kind: "User", Name: "alice"}, rbacv1.Subject{Kind: "Group", Name: "admins"}
	set("clusterroles", "10", role("ClusterRole", "", "one", "pods"), role("ClusterRole", "", "two", "nodes"))
	set("roles", "11", role("Role", "a", "one", "secrets"))
	set("clusterrolebindings", "12", bind("ClusterRoleBinding", "", "b1", "ClusterRole", "one", alice, admins),
		bind("ClusterRoleBinding", "", "b2", "ClusterRole", "gone", admins))
	require.True(t, rules("alice", "a").Incomplete, "one collection is not complete")
	set("rolebindings", "13", bind("RoleBinding", "a", "b3", "Role", "one", admins), bind("RoleBinding", "b", "b4", "ClusterRole", "two", alice),
		bind("RoleBinding", "b", "b5", "Role", "none", alice))

	for _, tc := range []struct {
		user, namespace string
		groups          []string
		resources       []string
		problem         string
		incomplete      bool
	}{
		{user: "alice", namespace: "a", resources: []string{"pods"}},
		{user: "alice", namespace: "b", resources: []string{"pods", "nodes"}, problem: `role.rbac.authorization.k8s.io "none" not found`},
		{user: "alice", namespace: "a", groups: []string{"admins"}, resources: []string{"pods", "secrets"}, problem: `clusterrole.rbac.authorization.k8s.io "gone" not found`},
		{user: "bob", namespace: "a"},
		{user: "system:node:n", namespace: "a", groups: []string{nodes}, problem: notResolved, incomplete: true},
		{user: "system:node:n", namespace: "a"},
	} {
		got := rules(tc.user, tc.namespace, tc.groups...)
		var resources []string
		for i, rule := range got.ResourceRules {
			require.Equal(t, authorizationv1.ResourceRule{
				Verbs: []string{"get"}, APIGroups: []string{""}, Resources: rule.Resources, ResourceNames: []string{"x"},
			}, rule)
			resources = append(resources, rule.Resources...)
			require.Equal(t, []string{"/" + rule.Resources[0]}, got.NonResourceRules[i].NonResourceURLs)
		}
		require.ElementsMatch(t, tc.resources, resources, tc)
		require.Equal(t, tc.problem, got.EvaluationError)
		require.Equal(t, tc.incomplete, got.Incomplete)
		require.NotNil(t, got.ResourceRules)
		require.NotNil(t, got.NonResourceRules)
	}
}

// TestOwnRulesRemembered: without RBAC objects the rules are what the server has allowed, in the namespace or
// everywhere, and incomplete.
func TestOwnRulesRemembered(t *testing.T) {
	db := memory.New()
	defer func() { require.NoError(t, db.Close()) }()
	x := newDesk(openDecisions(t, db))
	x.connected = true
	x.server["alice list pods"], x.server["alice watch pods"] = true, true
	for _, verb := range []string{"list", "watch", "get"} {
		x.may("alice", verb, "pods")
	}
	ctx := WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{Username: "alice", Groups: []string{authenticated}}})
	asked := x.reviewed
	got := x.OwnRules(ctx, "a", []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "nodes"}})
	require.Equal(t, authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
		NonResourceRules: []authorizationv1.NonResourceRule{},
		Incomplete:       true, EvaluationError: notCached,
	}, got)
	require.Equal(t, asked, x.reviewed, "the server is not asked")
}

// TestReview: a review is the decision on the request, and asks the server no second time; offline its reason is
// that it is a remembered one.
func TestReview(t *testing.T) {
	db := memory.New()
	defer func() { require.NoError(t, db.Close()) }()
	x := newDesk(openDecisions(t, db))
	x.connected, x.reason = true, "by the server"
	x.server["alice list pods"] = true
	ctx := WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{Username: "alice", Groups: []string{authenticated}}})
	review := func(resource string) authorizationv1.SubjectAccessReviewStatus {
		status, err := x.Review(ctx, ask("list", resource))
		require.NoError(t, err)
		require.Equal(t, x.may("alice", "list", resource), status.Allowed)
		return status
	}
	require.Equal(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "by the server"}, review("pods"))
	require.Equal(t, authorizationv1.SubjectAccessReviewStatus{Reason: "by the server"}, review("nodes"))
	require.Equal(t, 2, x.reviewed)
	x.connected = false
	require.Equal(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "the cluster can't be asked: it has allowed it lately"}, review("pods"))
	require.Equal(t, authorizationv1.SubjectAccessReviewStatus{Reason: "the cluster can't be asked, and has not allowed it lately"}, review("nodes"))
	x.connected, x.busy = true, true
	_, err := x.Review(ctx, ask("watch", "pods"))
	require.ErrorContains(t, err, ErrBusy.Error())
}
