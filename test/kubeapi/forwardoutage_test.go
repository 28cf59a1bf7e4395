package kubeapi

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestForwardKubectl: kubectl reads and writes through the agent, also what is not cached.
func TestForwardKubectl(t *testing.T) {
	users := newUsers(t, "forward-kubectl", 6)
	s := forwardSite(t, shared.plane)
	s.awaitUsers(users)
	config, err := clientcmd.LoadFromFile(s.cached)
	require.NoError(t, err)
	for _, a := range config.AuthInfos {
		a.Token = users[5].token
	}
	kubeconfig := filepath.Join(s.dir, "user.kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	newNamespace(t, "fwd-kubectl")
	manifest := filepath.Join(s.dir, "manifest.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: fwd-kubectl}\ndata: {k: v}\n---\n"+
		"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: fwd-kubectl}\nspec: {hard: {pods: \"5\"}}\n"), 0o600))
	for _, tc := range []struct{ args, want string }{
		{"apply -f " + manifest, "configmap/a created\nresourcequota/q created\n"},
		{"apply -f " + manifest, "configmap/a unchanged\nresourcequota/q unchanged\n"},
		{"apply --server-side --force-conflicts -f " + manifest, "configmap/a serverside-applied\nresourcequota/q serverside-applied\n"},
		{"create configmap b -n fwd-kubectl --from-literal=x=y", "configmap/b created\n"},
		{"create configmap c -n fwd-kubectl --dry-run=server -o name", "configmap/c\n"},
		{"label configmap b -n fwd-kubectl a=b", "configmap/b labeled\n"},
		{"get quota -n fwd-kubectl -o name", "resourcequota/q\n"},
		{"auth can-i create pods -n fwd-kubectl", "yes\n"},
		{"auth whoami -o jsonpath={.status.userInfo.username}", "system:serviceaccount:forward-kubectl:user-5"},
		{"delete configmap a b -n fwd-kubectl", "configmap \"a\" deleted from fwd-kubectl namespace\nconfigmap \"b\" deleted from fwd-kubectl namespace\n"},
		{"delete -f " + manifest + " --ignore-not-found", "resourcequota \"q\" deleted from fwd-kubectl namespace\n"},
	} {
		got := s.kubectl(kubeconfig, tc.args)
		require.Zero(t, got.code, "%s: %s", tc.args, got.stderr)
		require.Equal(t, tc.want, got.stdout, tc.args)
	}
	// The bearer of the agent's own token has no rights in the cluster: nothing is forwarded.
	got := s.kubectl(s.cached, "create configmap mine -n fwd-kubectl")
	require.NotZero(t, got.code)
	require.Contains(t, got.stderr, "the server does not allow this method on the requested resource")
	answer, err := s.agent.target.askOnce(t.Context(), request{method: http.MethodGet, path: "/api/v1/namespaces/fwd-kubectl/resourcequotas"})
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, answer.status)
}

// TestForwardOutage: a kube-apiserver that ends while requests are forwarded gives each a clear end, and
// while it is away they are refused at once; what is cached goes on being read.
func TestForwardOutage(t *testing.T) {
	users := newUsers(t, "forward-outage", 6)
	s := forwardSite(t, shared.plane)
	s.awaitUsers(users)
	c := users[5].at(t, restConfig(t, s.cached))
	pods := step{name: "pods", method: "GET", path: "/api/v1/namespaces/ns/pods"}
	documents := []string{"/api", "/apis", "/version"}
	for _, path := range append(documents, pods.path) { // the decisions are remembered
		require.True(t, strings.HasPrefix(c.send(t, step{method: "GET", path: path}, ""), "200"), path)
	}

	ask := func(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		return c.http.Do(r)
	}
	// A watch that is forwarded, with its first event, and a body that has not ended.
	watch, err := ask(t.Context(), "GET", "/api/v1/namespaces/default/services?watch=1", nil)
	require.NoError(t, err)
	defer watch.Body.Close()
	_, err = bufio.NewReader(watch.Body).ReadString('\n')
	require.NoError(t, err)
	from, to := io.Pipe()
	type result struct {
		answer *http.Response
		err    error
	}
	written := make(chan result, 1)
	go func() {
		a, err := ask(t.Context(), "POST", "/api/v1/namespaces/default/configmaps", from)
		written <- result{a, err}
	}()
	_, err = io.WriteString(to, `{"apiVersion":"v1",`) // returns when it is on its way
	require.NoError(t, err)

	s.link.Down()
	_, err = io.ReadAll(watch.Body)
	require.Error(t, err, "the watch is cut, and does not look as if it had ended")
	got := <-written
	require.NoError(t, got.err)
	status := statusOf(t, got.answer)
	require.Contains(t, []int{http.StatusBadGateway, http.StatusServiceUnavailable}, got.answer.StatusCode)
	require.Contains(t, status.Message, "kube-apiserver")
	_ = to.Close()

	for _, x := range []struct{ method, path string }{
		{"POST", "/api/v1/namespaces/default/configmaps"}, {"DELETE", "/api/v1/namespaces/default/configmaps/x"}, {"GET", "/api/v1/namespaces/default/services"},
		{"GET", "/api/v1/namespaces/ns/pods/web-0/log"}, {"POST", "/api/v1/namespaces/ns/pods/web-0/exec"}, {"GET", "/api/v1/namespaces/default/endpoints"},
	} {
		began := time.Now()
		a, err := ask(t.Context(), x.method, x.path, strings.NewReader(""))
		require.NoError(t, err)
		status := statusOf(t, a)
		require.Equal(t, http.StatusServiceUnavailable, a.StatusCode, "%v", x)
		require.Equal(t, metav1.StatusReasonServiceUnavailable, status.Reason)
		require.Empty(t, a.Header.Get("Retry-After"), "client-go would repeat it for nothing")
		require.Less(t, time.Since(began), 5*time.Second)
	}
	for _, path := range append(documents, pods.path) {
		require.Eventually(t, func() bool {
			return strings.HasPrefix(c.send(t, step{method: "GET", path: path}, ""), "200")
		}, patience, pollEvery, path)
	}
	s.link.Up()
	require.Eventually(t, func() bool {
		a, err := ask(t.Context(), "POST", "/api/v1/namespaces/default/configmaps?dryRun=All", strings.NewReader(`{"metadata":{"name":"back"}}`))
		if err != nil {
			return false
		}
		_ = a.Body.Close()
		return a.StatusCode == http.StatusCreated
	}, patience, pollEvery, "it is forwarded again")

	// The agent stops at once, whatever is forwarded.
	watch, err = ask(t.Context(), "GET", "/api/v1/namespaces/default/services?watch=1", nil)
	require.NoError(t, err)
	defer watch.Body.Close()
	began := time.Now()
	s.stop()
	require.Less(t, time.Since(began), 15*time.Second)
	log := harness.ReadFile(t, filepath.Join(s.dir, "log"))
	require.NotContains(t, string(log), users[5].token)
}

// statusOf reads the Status of an answer.
func statusOf(t *testing.T, a *http.Response) (s metav1.Status) {
	t.Helper()
	defer a.Body.Close()
	require.NoError(t, json.NewDecoder(a.Body).Decode(&s))
	require.Equal(t, "Status", s.Kind)
	return s
}
