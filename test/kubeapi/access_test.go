package kubeapi

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
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

// accessUser is a user of the test of access.
type accessUser interface {
	at(*testing.T, *rest.Config) *caller
}

// TestAccessMatrix: users get from the agent what the kube-apiserver gives them, and are refused what it
// refuses, in its words: while it can be reached, and while it can't, after a restart. They are service
// accounts and holders of client certificates, whose rights come from ClusterRoles and Roles that are
// bound to them or to their groups.
//
// With forwarding a write has the kube-apiserver's answer. Without, the refusal is the same, and a write
// that would be allowed gets 405.
func TestAccessMatrix(t *testing.T) {
	for _, tc := range []struct {
		name           string
		rules, forward bool
	}{{"by remembered decisions", false, true}, {"by cached RBAC objects", true, false}} {
		t.Run(tc.name, func(t *testing.T) {
			namespace := "access-" + fmt.Sprint(tc.rules)
			users, kubeconfigs := newCertificates(t, namespace)
			s := newSiteOf(t, shared.plane, accessResources(tc.rules), func(s *site) {
				s.access, s.forward, s.identities = true, tc.forward, kubeconfigs
			})
			require.NoError(t, s.agent.await(t.Context(), s.resources))
			grouped := namespace + "-grouped"
			accounts := append(newUsers(t, namespace, 30), newUsers(t, grouped, 2)...)
			grant(t, grouped, 6, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + grouped})
			s.awaitUsers(accounts)
			for _, u := range accounts {
				users = append(users, u)
			}

			reads, writes, bodies := accessReads(), accessWrites(), accessBodies{}
			var seen []accessAnswers
			for _, u := range users {
				seen = append(seen, bodies.compare(t, u.at(t, restConfig(t, s.server)), u.at(t, restConfig(t, s.cached)), reads, writes, tc.forward))
			}
			requireMixed(t, seen)
			for _, u := range []accessUser{users[1], users[len(users)-1]} { // the control of groups, and of a Role
				code, body := u.at(t, restConfig(t, s.cached)).get(t, "/apis/lab.example.com/v1/namespaces/ns/widgets")
				require.Equal(t, http.StatusOK, code, body)
			}
			s.link.Down()
			s.stop()
			s.start()
			for i, u := range users {
				cached := u.at(t, restConfig(t, s.cached))
				seen[i].requireAway(t, cached, reads, writes, tc.forward)
				direct := u.at(t, restConfig(t, s.server))
				for _, path := range accessUnasked() {
					want := http.StatusForbidden
					if tc.rules {
						want, _ = direct.get(t, path)
					}
					code, body := cached.get(t, path)
					require.Equal(t, want, code, "%s %s, for the first time while the server is away: %s", cached.name, path, body)
				}
			}
			s.link.Up()
		})
	}
}

// notRemembered is the reason that a refusal has while the server is away.
const notRemembered = ": the cluster can't be asked, and has not allowed it lately"

// accessReads returns the paths that are read.
func accessReads() []string {
	paths := []string{"/api/v1/nodes", "/api/v1/nodes/edge-1", "/version", "/api", "/apis", "/api/v1"}
	for _, resource := range []string{"api/v1/%spods", "api/v1/%sconfigmaps", "api/v1/%ssecrets", "apis/apps/v1/%sdeployments", "apis/lab.example.com/v1/%swidgets"} {
		for _, namespace := range []string{"", "namespaces/ns/", "namespaces/default/"} {
			path := "/" + fmt.Sprintf(resource, namespace)
			paths = append(paths, path, path+"?watch=1&resourceVersion=0", path+"?fieldSelector=metadata.name=a", path+"?watch=1&fieldSelector=metadata.name=a")
			if namespace != "" {
				paths = append(paths, path+"/a", path+"/b")
			}
		}
	}
	return paths
}

// accessUnasked returns paths that are read only while the server is away: no decision on them is
// remembered.
func accessUnasked() (paths []string) {
	for _, resource := range []string{"api/v1/%s/pods", "api/v1/%s/configmaps", "api/v1/%s/secrets", "apis/apps/v1/%s/deployments", "apis/lab.example.com/v1/%s/widgets"} {
		paths = append(paths, "/"+fmt.Sprintf(resource, "namespaces/ns-a"), "/"+fmt.Sprintf(resource, "namespaces/ns")+"/c")
	}
	return paths
}

// isDocument reports whether a path is that of a document about what is served.
func isDocument(path string) bool { return !strings.Contains(path, "/v1/") }

// accessWrites returns writes that change nothing.
func accessWrites() (all []step) {
	for _, of := range []struct{ prefix, version, resource, kind string }{
		{"/api/v1", "v1", "pods", "Pod"}, {"/api/v1", "v1", "configmaps", "ConfigMap"}, {"/api/v1", "v1", "secrets", "Secret"},
		{"/apis/apps/v1", "apps/v1", "deployments", "Deployment"}, {"/apis/lab.example.com/v1", "lab.example.com/v1", "widgets", "Widget"},
	} {
		for _, x := range []struct{ namespace, method, name, contentType string }{
			{"default", http.MethodPost, "", ""}, {"ns", http.MethodPost, "", ""}, {"ns", http.MethodPut, "a", ""},
			{"ns", http.MethodPatch, "a", "application/merge-patch+json"}, {"ns", http.MethodPatch, "b", "application/merge-patch+json"},
			{"ns", http.MethodDelete, "a", ""},
		} {
			path := of.prefix + "/namespaces/" + x.namespace + "/" + of.resource
			if x.name != "" {
				path += "/" + x.name
			}
			w := step{name: x.method + " " + path, method: x.method, path: path + "?dryRun=All", contentType: x.contentType}
			if x.method != http.MethodDelete {
				w.body = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, of.version, of.kind, cmp.Or(x.name, "new"))
			}
			all = append(all, w)
		}
	}
	return all
}

// accessAnswers are the agent's answers to a user while the kube-apiserver can be reached.
type accessAnswers struct {
	reads  []accessAnswer
	writes []string // codes
}

type accessAnswer struct {
	code int
	body string // without the resourceVersion of a list
}

// accessBodies are the bodies of what may be read, by path. They are the same for each user.
type accessBodies map[string]string

// compare requires that a user gets from the agent what the kube-apiserver answers, and returns it.
func (b accessBodies) compare(t *testing.T, direct, cached *caller, reads []string, writes []step, forward bool) (seen accessAnswers) {
	t.Helper()
	for _, path := range reads {
		want, body := direct.get(t, path)
		code, text := cached.get(t, path)
		require.Equal(t, want, code, "%s %s: %s %s", cached.name, path, body, text)
		first, known := b[path]
		switch {
		case isDocument(path) && code == http.StatusOK:
		case known && code == http.StatusOK:
			require.Equal(t, first, text, "%s %s is the same for others", cached.name, path)
		default:
			require.JSONEq(t, body, text, "%s %s", cached.name, path)
		}
		if code == http.StatusOK {
			b[path] = text
		}
		seen.reads = append(seen.reads, accessAnswer{code, text})
	}
	for _, x := range writes {
		want, got := direct.send(t, x, "ns"), cached.send(t, x, "ns")
		switch refused := strings.HasPrefix(want, "403"); {
		case forward, refused:
			require.Equal(t, want, got, "%s %s", cached.name, x.name)
		default:
			require.Equal(t, "405", got[:3], "%s %s: %s", cached.name, x.name, want)
		}
		seen.writes = append(seen.writes, got[:3])
	}
	return seen
}

// requireAway requires that a user gets the same while the kube-apiserver can't be reached, and that no
// write is forwarded.
func (a accessAnswers) requireAway(t *testing.T, cached *caller, reads []string, writes []step, forward bool) {
	t.Helper()
	for i, path := range reads {
		code, body := cached.get(t, path)
		require.Equal(t, a.reads[i].code, code, "%s %s while the server is away: %s", cached.name, path, body)
		if code == http.StatusForbidden {
			body = strings.Replace(body, notRemembered, "", 1)
		}
		if code != http.StatusOK || !isDocument(path) { // a document may have been the server's
			require.Equal(t, a.reads[i].body, body, "%s %s while the server is away", cached.name, path)
		}
	}
	for i, x := range writes {
		want := a.writes[i]
		if forward {
			want = "503"
		}
		require.Equal(t, want, cached.send(t, x, "ns")[:3], "%s %s while the server is away", cached.name, x.name)
	}
}

// requireMixed requires that some reads and some writes are refused, and some are not.
func requireMixed(t *testing.T, all []accessAnswers) {
	t.Helper()
	var reads, forbiddenReads, writes, forbiddenWrites int
	for _, a := range all {
		for _, r := range a.reads {
			reads++
			if r.code == http.StatusForbidden {
				forbiddenReads++
			}
		}
		for _, code := range a.writes {
			writes++
			if code == "403" {
				forbiddenWrites++
			}
		}
	}
	t.Logf("of %d users, %d of %d reads and %d of %d writes are refused", len(all), forbiddenReads, reads, forbiddenWrites, writes)
	require.Greater(t, forbiddenReads, reads/10)
	require.Less(t, forbiddenReads, reads*9/10)
	require.Greater(t, forbiddenWrites, writes/10)
	require.Less(t, forbiddenWrites, writes*9/10)
}

// user is a service account with its token.
type user struct{ name, token string }

// newUsers makes service accounts with rights of several kinds.
func newUsers(t *testing.T, namespace string, n int) []user {
	t.Helper()
	ctx := t.Context()
	client := harness.Clientset(t, shared.plane.RESTConfig(controlplane.Admin))
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	var out []user
	for i := range n {
		name := fmt.Sprintf("user-%d", i)
		_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
		if i/accessKinds%2 == 1 {
			subject = rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "system:serviceaccount:" + namespace + ":" + name}
		}
		grant(t, namespace+"-"+name, i, subject)
		seconds := int64(3600)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		request, err = client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
		require.NoError(t, err)
		out = append(out, user{name, request.Status.Token})
	}
	return out
}

// newCertificates makes users with client certificates, and returns their kubeconfigs too. The first has
// rights of its own, the second those of its group, and the third none.
func newCertificates(t *testing.T, name string) (all []accessUser, kubeconfigs []string) {
	t.Helper()
	for _, kind := range []string{"alone", "member", "none"} {
		c := issueCertified(t, name+"-"+kind, name+"-"+kind+"s")
		all, kubeconfigs = append(all, c), append(kubeconfigs, c.kubeconfig)
	}
	grant(t, name+"-alone", 3, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: name + "-alone"})
	grant(t, name+"-members", 30, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: name + "-members"})
	return all, kubeconfigs
}

// accessKinds is the number of kinds of rights that grant gives.
const accessKinds = 8

// grant gives a subject the ith of the rights, everywhere or, from the third round of kinds on, in the
// namespace ns, there by a ClusterRole and then by a Role. The role and its binding have the name.
func grant(t *testing.T, name string, i int, subject rbacv1.Subject) {
	t.Helper()
	ctx := t.Context()
	client := harness.Clientset(t, shared.plane.RESTConfig(controlplane.Admin))
	read := []string{"get", "list", "watch"}
	rules := [accessKinds][]rbacv1.PolicyRule{
		{},
		{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read}},
		{{APIGroups: []string{""}, Resources: []string{"pods", "configmaps"}, Verbs: []string{"list", "create"}}},
		{{APIGroups: []string{"", "apps", "lab.example.com"}, Resources: []string{"*"}, Verbs: []string{"get", "delete"}}},
		{{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: append(read, "patch"), ResourceNames: []string{"a"}}},
		{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
		{
			{APIGroups: []string{"apps"}, Resources: []string{"deployments", "deployments/status"}, Verbs: []string{"watch", "list", "update"}},
			{APIGroups: []string{"lab.example.com"}, Resources: []string{"widgets"}, Verbs: append(read, "create")},
		},
		{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: read, ResourceNames: []string{"edge-1"}}},
	}[i%accessKinds]
	meta, everywhere := metav1.ObjectMeta{Name: name}, i/accessKinds < 2
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	var err error
	if i/accessKinds == 3 {
		ref.Kind = "Role"
		_, err = client.RbacV1().Roles("ns").Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	} else {
		_, err = client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	}
	require.NoError(t, err)
	if everywhere {
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}}, metav1.CreateOptions{})
	} else {
		_, err = client.RbacV1().RoleBindings("ns").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}}, metav1.CreateOptions{})
	}
	require.NoError(t, err)
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

// listVersion is the resourceVersion of a list, which grows with every change in the cluster.
var listVersion = regexp.MustCompile(`"metadata":\{("continue":"",)?"resourceVersion":"\d+"\}`)

// get reads a path, and returns the body without the resourceVersion of a list. The body of a watch is
// not read, as it would last.
func (c *caller) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	answer, err := c.http.Get(c.base + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK && strings.Contains(path, "watch=") {
		return answer.StatusCode, "{}"
	}
	raw, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, listVersion.ReplaceAllString(string(raw), `"metadata":{}`)
}

// awaitUsers waits until the agent has the users' service accounts.
func (s *site) awaitUsers(users []user) {
	s.t.Helper()
	last := users[len(users)-1]
	cached := last.at(s.t, restConfig(s.t, s.cached))
	require.Eventually(s.t, func() bool { code, _ := cached.get(s.t, "/version"); return code == http.StatusOK }, patience, pollEvery)
}
