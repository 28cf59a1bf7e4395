package kubeapi

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
)

// accessResources are cached for the test of access. RBAC objects are among them if rules is set.
func accessResources(rules bool) (all []*resource) {
	names := []string{"pods.v1.", "configmaps.v1.", "secrets.v1.", "nodes.v1.", "deployments.v1.apps", "serviceaccounts.v1.", "widgets.v1.lab.example.com"}
	if rules {
		names = append(names, "roles.v1.rbac.authorization.k8s.io", "rolebindings.v1.rbac.authorization.k8s.io",
			"clusterroles.v1.rbac.authorization.k8s.io", "clusterrolebindings.v1.rbac.authorization.k8s.io")
	}
	for _, name := range names {
		gvr, _ := schema.ParseResourceArg(name)
		all = append(all, &resource{GroupVersionResource: *gvr})
	}
	return all
}

// caller is a user at a server.
type caller struct {
	name string
	http *http.Client
	base string
}

// TestAccessMatrix: 30 users get from the agent what the kube-apiserver gives them, and are refused what
// it refuses, in its words: while it can be reached, and while it can't, after a restart.
func TestAccessMatrix(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rules bool
	}{{"by remembered decisions", false}, {"by cached RBAC objects", true}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSiteOf(t, shared.plane, accessResources(tc.rules), func(s *site) { s.access = true })
			require.NoError(t, s.agent.await(t.Context(), s.resources))
			users := newUsers(t, "access-"+fmt.Sprint(tc.rules), 30)
			s.awaitUsers(users)
			var paths []string
			for _, resource := range []string{"api/v1/%spods", "api/v1/%sconfigmaps", "api/v1/%ssecrets", "apis/apps/v1/%sdeployments"} {
				for _, namespace := range []string{"", "namespaces/ns/", "namespaces/default/"} {
					path := "/" + fmt.Sprintf(resource, namespace)
					paths = append(paths, path, path+"?watch=1&resourceVersion=0", path+"?fieldSelector=metadata.name=a", path+"?watch=1&fieldSelector=metadata.name=a")
					if namespace != "" {
						paths = append(paths, path+"/a", path+"/b")
					}
				}
			}
			paths = append(paths, "/api/v1/nodes", "/api/v1/nodes/edge-1", "/version", "/api", "/apis", "/api/v1")
			type key struct{ user, path string }
			want := map[key]int{}
			both := 0
			for _, u := range users {
				direct, cached := u.at(t, restConfig(t, s.server)), u.at(t, restConfig(t, s.cached))
				for _, path := range paths {
					code, body := direct.get(t, path)
					got, text := cached.get(t, path)
					want[key{u.name, path}] = got
					if code == http.StatusForbidden || got == http.StatusForbidden {
						require.Equal(t, code, got, "%s %s: %s %s", u.name, path, body, text)
						require.JSONEq(t, body, text, "%s %s", u.name, path)
						both++
						continue
					}
					require.Equal(t, code, got, "%s %s: %s %s", u.name, path, body, text)
				}
			}
			require.Greater(t, both, len(users)*len(paths)/10, "some are refused")
			require.Less(t, both, len(users)*len(paths)*9/10, "some are not")

			s.link.cut()
			s.stop()
			s.start()
			for _, u := range users {
				cached := u.at(t, restConfig(t, s.cached))
				for _, path := range paths {
					got, body := cached.get(t, path)
					require.Equal(t, want[key{u.name, path}], got, "%s %s while the server is away: %s", u.name, path, body)
				}
			}
			s.link.restore(t)
		})
	}
}

// user is a service account with its token.
type user struct{ name, token string }

// newUsers makes service accounts with rights of several kinds.
func newUsers(t *testing.T, namespace string, n int) []user {
	t.Helper()
	ctx := t.Context()
	client, err := kubernetes.NewForConfig(shared.plane.RESTConfig(controlplane.Admin))
	require.NoError(t, err)
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	read := []string{"get", "list", "watch"}
	rules := [][]rbacv1.PolicyRule{
		{},
		{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read}},
		{{APIGroups: []string{""}, Resources: []string{"pods", "configmaps"}, Verbs: []string{"list"}}},
		{{APIGroups: []string{"", "apps"}, Resources: []string{"*"}, Verbs: []string{"get"}}},
		{{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: read, ResourceNames: []string{"a"}}},
		{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
		{{APIGroups: []string{"apps"}, Resources: []string{"deployments", "deployments/status"}, Verbs: []string{"watch", "list"}}},
		{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: read, ResourceNames: []string{"edge-1"}}},
	}
	var out []user
	for i := range n {
		name := fmt.Sprintf("user-%d", i)
		_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		role := namespace + "-" + name
		_, err = client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules[i%len(rules)]}, metav1.CreateOptions{})
		require.NoError(t, err)
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}}
		if i/len(rules)%2 == 1 {
			subjects = []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "system:serviceaccount:" + namespace + ":" + name}}
		}
		if i/len(rules) < 2 {
			_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		} else {
			_, err = client.RbacV1().RoleBindings("ns").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		}
		require.NoError(t, err)
		seconds := int64(3600)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		request, err = client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
		require.NoError(t, err)
		out = append(out, user{name, request.Status.Token})
	}
	return out
}

// at returns the user as a caller of a server.
func (u user) at(t *testing.T, config *rest.Config) *caller {
	t.Helper()
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = u.token
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return &caller{name: u.name, http: client, base: config.Host}
}

func (c *caller) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	answer, err := c.http.Get(c.base + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return answer.StatusCode, "" // a watch would last
	}
	raw, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(raw)
}

// awaitUsers waits until the agent has the users' service accounts.
func (s *site) awaitUsers(users []user) {
	s.t.Helper()
	last := users[len(users)-1]
	cached := last.at(s.t, restConfig(s.t, s.cached))
	require.Eventually(s.t, func() bool { code, _ := cached.get(s.t, "/version"); return code == http.StatusOK }, patience, pollEvery)
}
