package kubeapi

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// step is a request of a script. NS in its path and body stands for the namespace.
type step struct {
	name, method, path, body string
	contentType              string // application/json if it is empty
	accept                   string
}

const configMapsPath = "/api/v1/namespaces/NS/configmaps"

// forwardedSteps are requests that no collection answers, in an order in which each finds what it needs.
var forwardedSteps = []step{
	{name: "create", method: "POST", path: configMapsPath, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`},
	{name: "create twice", method: "POST", path: configMapsPath, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`},
	{name: "dry run", method: "POST", path: configMapsPath + "?dryRun=All", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dry"}}`},
	{name: "create by protobuf that is none", method: "POST", path: configMapsPath, contentType: "application/vnd.kubernetes.protobuf", body: "k8s\x00nothing"},
	{name: "create YAML", method: "POST", path: configMapsPath, contentType: "application/yaml", body: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n", accept: "application/yaml"},
	{name: "bad JSON", method: "POST", path: configMapsPath, body: `{"apiVersion":"v1","kind":`},
	{name: "no body", method: "POST", path: configMapsPath},
	{name: "another kind", method: "POST", path: configMapsPath, body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`},
	{name: "another namespace", method: "POST", path: configMapsPath, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"default"}}`},
	{name: "unknown field", method: "POST", path: configMapsPath + "?fieldValidation=Strict", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"x":1}`},
	{name: "warning", method: "POST", path: configMapsPath + "?fieldValidation=Warn&dryRun=All", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"x":1}`},
	{name: "unknown type", method: "POST", path: configMapsPath, contentType: "text/html", body: "<html>"},
	{name: "invalid", method: "POST", path: configMapsPath, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"A B"}}`},
	{name: "update", method: "PUT", path: configMapsPath + "/a", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"w"}}`},
	{name: "update of an old state", method: "PUT", path: configMapsPath + "/a", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"1"}}`},
	{name: "merge patch", method: "PATCH", path: configMapsPath + "/a", contentType: "application/merge-patch+json", body: `{"data":{"m":"1"}}`},
	{name: "JSON patch", method: "PATCH", path: configMapsPath + "/a", contentType: "application/json-patch+json", body: `[{"op":"add","path":"/data/j","value":"1"}]`},
	{name: "JSON patch that fails", method: "PATCH", path: configMapsPath + "/a", contentType: "application/json-patch+json", body: `[{"op":"test","path":"/data/j","value":"2"}]`},
	{name: "strategic patch", method: "PATCH", path: configMapsPath + "/a", contentType: "application/strategic-merge-patch+json", body: `{"data":{"s":"1"}}`},
	{name: "apply", method: "PATCH", path: configMapsPath + "/b?fieldManager=x&force=true", contentType: "application/apply-patch+yaml", body: "apiVersion: v1\nkind: ConfigMap\ndata: {y: z}\n"},
	{name: "apply with a conflict", method: "PATCH", path: configMapsPath + "/b?fieldManager=other", contentType: "application/apply-patch+yaml", body: "apiVersion: v1\nkind: ConfigMap\ndata: {y: other}\n"},
	{name: "patch of nothing", method: "PATCH", path: configMapsPath + "/none", contentType: "application/merge-patch+json", body: `{}`},
	{name: "patch without a type", method: "PATCH", path: configMapsPath + "/a", body: `{}`},
	{name: "deployment", method: "POST", path: "/apis/apps/v1/namespaces/NS/deployments", body: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
	{name: "scale", method: "GET", path: "/apis/apps/v1/namespaces/NS/deployments/d/scale"},
	{name: "scaled", method: "PUT", path: "/apis/apps/v1/namespaces/NS/deployments/d/scale", body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","namespace":"NS"},"spec":{"replicas":3}}`},
	{name: "status", method: "PATCH", path: "/apis/apps/v1/namespaces/NS/deployments/d/status", contentType: "application/merge-patch+json", body: `{"status":{"replicas":1}}`},
	{name: "custom resource", method: "POST", path: "/apis/lab.example.com/v1/namespaces/NS/widgets", body: `{"apiVersion":"lab.example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}`},
	{name: "pod", method: "POST", path: "/api/v1/namespaces/NS/pods", body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`},
	{name: "bind", method: "POST", path: "/api/v1/namespaces/NS/pods/p/binding", body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"none"}}`},
	{name: "log of a pod that does not run", method: "GET", path: "/api/v1/namespaces/NS/pods/p/log"},
	{name: "exec without an upgrade", method: "POST", path: "/api/v1/namespaces/NS/pods/p/exec?command=ls&stdout=true"},
	{name: "eviction", method: "POST", path: "/api/v1/namespaces/NS/pods/p/eviction?dryRun=All", body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`},
	{name: "event", method: "POST", path: "/api/v1/namespaces/NS/events", body: `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"involvedObject":{"kind":"Pod","name":"p","namespace":"NS"},"reason":"R"}`},
	{name: "token", method: "POST", path: "/api/v1/namespaces/NS/serviceaccounts/default/token", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":600}}`},
	{name: "not cached", method: "GET", path: "/api/v1/namespaces/NS/resourcequotas"},
	{name: "one that is not cached", method: "GET", path: "/api/v1/namespaces/NS/events/e"},
	{name: "not cached, as a table", method: "GET", path: "/api/v1/namespaces/NS/events", accept: "application/json;as=Table;v=v1;g=meta.k8s.io"},
	{name: "quota", method: "POST", path: "/api/v1/namespaces/NS/resourcequotas", body: `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"}}`},
	{name: "watch", method: "GET", path: "/api/v1/namespaces/NS/resourcequotas?watch=1&timeoutSeconds=1"},
	{name: "watch with a bookmark", method: "GET", path: "/api/v1/namespaces/NS/resourcequotas?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"},
	{name: "another version", method: "GET", path: "/apis/lab.example.com/v1alpha1/namespaces/NS/widgets/w"},
	{name: "not covered", method: "GET", path: "/api/v1/namespaces/NS/endpoints"},
	{name: "not covered, one", method: "GET", path: "/api/v1/namespaces/NS/endpoints/none"},
	{name: "not covered, as YAML", method: "GET", path: "/api/v1/namespaces/NS/endpoints", accept: "application/yaml"},
	{name: "no such resource", method: "GET", path: "/api/v1/namespaces/NS/nothings"},
	{name: "no such group", method: "GET", path: "/apis/none.example.com/v1/things"},
	{name: "discovery", method: "GET", path: "/apis", accept: acceptDiscovery},
	{name: "discovery of a group", method: "GET", path: "/apis/apps/v1"},
	{name: "version", method: "GET", path: "/version"},
	{name: "OpenAPI", method: "GET", path: "/openapi/v3"},
	{name: "root", method: "GET", path: "/"},
	{name: "head", method: "HEAD", path: "/api/v1/namespaces/NS/pods"},
	{name: "options", method: "OPTIONS", path: "/api/v1/namespaces/NS/pods"},
	{name: "odd path", method: "GET", path: "/api/v1//namespaces/NS/configmaps"},
	{name: "path with dots", method: "GET", path: "/api/v1/namespaces/none/../NS/configmaps"},
	{name: "path with an encoded slash", method: "GET", path: "/api/v1/namespaces/NS%2Fconfigmaps"},
	{name: "path with two slashes at its begin", method: "GET", path: "//api/v1/namespaces/NS/secrets"},
	{name: "delete with a precondition", method: "DELETE", path: configMapsPath + "/a", body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"1"}}`},
	{name: "delete", method: "DELETE", path: configMapsPath + "/a"},
	{name: "delete again", method: "DELETE", path: configMapsPath + "/a"},
	{name: "delete at once", method: "DELETE", path: "/api/v1/namespaces/NS/pods/p", body: `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}`},
	{name: "delete all", method: "DELETE", path: configMapsPath},
}

// forwardSite starts an agent that forwards, and has the endpoints of one namespace.
func forwardSite(t *testing.T, on *plane, identities ...string) *site {
	t.Helper()
	s := newSiteOf(t, on, accessResources(false), func(s *site) {
		s.access, s.forward, s.identities = true, true, identities
		s.partly = "- {resource: endpoints, namespaces: [ns]}\n"
	})
	require.NoError(t, s.agent.await(t.Context(), s.resources))
	return s
}

// TestForward: what no collection answers is answered as by the kube-apiserver itself, to users with
// rights and to those without, whatever they have proven their identity with.
func TestForward(t *testing.T) {
	users := newUsers(t, "forward", 14)
	all, none, leaving := users[5], users[0], users[13]
	named := newCertified(t, "forward-certified", "operators")
	s := forwardSite(t, shared.plane, named.kubeconfig)
	s.awaitUsers(users)
	server, cached := restConfig(t, s.server), restConfig(t, s.cached)
	withdrawn := withdraw(t, leaving.at(t, cached), named.at(t, cached), "forward-"+leaving.name)
	for _, tc := range []struct {
		name           string
		direct, cached *caller
		allowed        int // at least how many steps succeed
	}{
		{"token-all", all.at(t, server), all.at(t, cached), 30},
		{"token-none", none.at(t, server), none.at(t, cached), 4},
		{"certificate", named.at(t, server), named.at(t, cached), 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			direct, through := newNamespace(t, "fwd-"+tc.name+"-direct"), newNamespace(t, "fwd-"+tc.name+"-cached")
			allowed := 0
			for _, x := range forwardedSteps {
				want, got := tc.direct.send(t, x, direct), tc.cached.send(t, x, through)
				require.Equal(t, want, got, x.name)
				watched := strings.Contains(x.path, "watch=1") && strings.HasPrefix(want, "200")
				require.Equal(t, watched, strings.Contains(want, `"type":"ADDED"`), x.name)
				if strings.HasPrefix(want, "2") {
					allowed++
				}
			}
			require.GreaterOrEqual(t, allowed, tc.allowed)
		})
	}
	t.Run("a certificate that no kubeconfig has", func(t *testing.T) {
		namespace := newNamespace(t, "fwd-unnamed")
		create := step{method: "POST", path: configMapsPath, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`}
		get := step{method: "GET", path: configMapsPath + "/a"}
		for _, c := range []struct {
			name string
			user certified
		}{
			{"of another user", newCertified(t, "forward-unnamed", "forward-unnamed")},
			{"of the user in other groups", newCertified(t, named.name, "forward-managers")},
		} {
			got := c.user.at(t, cached).send(t, create, namespace)
			require.Equal(t, "403", got[:3], "%s: %s", c.name, got)
			require.Contains(t, got, "with which a request can't be forwarded", c.name)
			direct := c.user.at(t, server)
			require.Equal(t, "404", direct.send(t, get, namespace)[:3], "%s: it was made", c.name)
			dry := step{method: "POST", path: create.path + "?dryRun=All", body: create.body}
			require.Equal(t, "201", direct.send(t, dry, namespace)[:3], "%s may make it", c.name)
		}
	})
	t.Run("a watch after its right was withdrawn", withdrawn)
}

// withdraw opens forwarded watches of two callers, and deletes the binding of the first. The returned
// function requires that its watch has ended within a minute, and the other's has not.
func withdraw(t *testing.T, leaving, staying *caller, binding string) func(*testing.T) {
	t.Helper()
	open := func(c *caller) <-chan time.Time {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+"/api/v1/services?watch=1", nil)
		require.NoError(t, err)
		a, err := c.http.Do(r)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Empty(t, a.Header.Get("Age"), "a forwarded watch has no Age")
		ended := make(chan time.Time, 1)
		go func() {
			defer a.Body.Close()
			_, _ = io.Copy(io.Discard, a.Body) // until it ends, in any way
			ended <- time.Now()
		}()
		return ended
	}
	gone, lasting := open(leaving), open(staying)
	client := harness.Clientset(t, shared.plane.RESTConfig(controlplane.Admin))
	require.NoError(t, client.RbacV1().ClusterRoleBindings().Delete(t.Context(), binding, metav1.DeleteOptions{}))
	began := time.Now()
	return func(t *testing.T) {
		select {
		case at := <-gone:
			require.Less(t, at.Sub(began), 70*time.Second) // a minute, and moments of a busy machine
		case <-time.After(time.Until(began.Add(75 * time.Second))):
			require.Fail(t, "the watch did not end within 75 s of the withdrawal")
		}
		require.Empty(t, lasting, "the other one lasts")
	}
}

// newNamespace makes a namespace with its default service account.
func newNamespace(t *testing.T, name string) string {
	t.Helper()
	client := harness.Clientset(t, shared.plane.RESTConfig(controlplane.Admin))
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().ServiceAccounts(name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return name
}

// changing is what differs between two answers: times, versions, identities, and tokens.
var changing = regexp.MustCompile(`"(resourceVersion|uid|creationTimestamp|time|expirationTimestamp|token|deletionTimestamp|startTime|lastTransitionTime|kubectl.kubernetes.io/[a-z-]+|authentication.kubernetes.io/credential-id)":("[^"]*"|\["[^"]*"\])|` +
	`(?m:^\s+(uid|resourceVersion|creationTimestamp|time): .*$)|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+|in record \(\d+\)`)

// send sends a request, and returns the status, headers and body of the answer, without what changes.
func (c *caller) send(t *testing.T, x step, namespace string) string {
	t.Helper()
	in := func(s string) string { return strings.ReplaceAll(s, "NS", namespace) }
	r, err := http.NewRequestWithContext(t.Context(), x.method, c.base+in(x.path), strings.NewReader(in(x.body)))
	require.NoError(t, err)
	if x.contentType == "" {
		x.contentType = "application/json"
	}
	r.Header.Set("Content-Type", x.contentType)
	if x.accept != "" {
		r.Header.Set("Accept", x.accept)
	}
	a, err := c.http.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	var b strings.Builder
	fmt.Fprintf(&b, "%d", a.StatusCode)
	for _, name := range append([]string{"Etag", "Accept-Patch", "Deprecation"}, comparedHeaders...) {
		if v := a.Header.Values(name); len(v) > 0 {
			fmt.Fprintf(&b, " %s=%q", name, v)
		}
	}
	text := strings.ReplaceAll(string(raw), namespace, "NS")
	for from, to := range map[string]string{"localhost": "HOST", strings.TrimPrefix(c.base, "https://"): "HOST"} {
		text = strings.ReplaceAll(text, from, to)
	}
	return b.String() + "\n" + changing.ReplaceAllString(text, "…")
}

// certified is a user with a client certificate.
type certified struct {
	*controlplane.Client
	name, kubeconfig string
}

// newCertified makes a user that may do everything, by its group.
func newCertified(t *testing.T, name, group string) certified {
	t.Helper()
	c := issueCertified(t, name, group)
	client := harness.Clientset(t, shared.plane.RESTConfig(controlplane.Admin))
	_, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: group}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: group}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

// issueCertified makes a user in two groups, without rights.
func issueCertified(t *testing.T, name, group string) certified {
	t.Helper()
	c, err := shared.IssueClient(name, []string{group, "others"}, time.Hour)
	require.NoError(t, err)
	// Only the certificate of the file is used: its server does not exist.
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.1:1"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificate: "client.pem", ClientKey: "client.pem"}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "client.pem"), append(c.CertPEM, c.KeyPEM...), 0o600))
	return certified{c, name, path}
}

// at returns the user as a caller of a server.
func (c certified) at(t *testing.T, config *rest.Config) *caller {
	t.Helper()
	config = rest.AnonymousClientConfig(config)
	config.CertData, config.KeyData = c.CertPEM, c.KeyPEM
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return &caller{name: c.name, http: client, base: config.Host}
}
