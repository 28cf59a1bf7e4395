package kubeapi

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

const (
	// silentLimit is how long the first request over a link that has become silent may take.
	silentLimit = 2 * time.Second

	// refusedLimit is how long any request may take after that.
	refusedLimit = 500 * time.Millisecond
)

// outage is a way in which a server becomes silent, or worse.
type outage struct {
	name       string
	begin, end func(*testing.T, *site)
	first      []silentRequest // what is asked first, each in an outage of its own
}

var outages = []outage{
	{"server stopped", signalServer(syscall.SIGSTOP), signalServer(syscall.SIGCONT), silentRequests},
	{"packets dropped", dropPackets, func(t *testing.T, s *site) { nft(t, "delete", "table", "inet", tableOf(s)) }, silentRequests[:1]},
	{"no answers", func(_ *testing.T, s *site) { s.link.Hang() }, func(_ *testing.T, s *site) { s.link.Up() }, silentRequests[:1]},
	{connectionsLost, func(_ *testing.T, s *site) { s.link.Lose() }, func(*testing.T, *site) {}, silentRequests[2:]},
	{"refused", func(_ *testing.T, s *site) { s.link.Down() }, func(_ *testing.T, s *site) { s.link.Up() }, silentRequests},
}

// connectionsLost is the outage in which new connections work.
const connectionsLost = "connections lost"

// TestSilentLink: over a link that has become silent, whatever is asked first has its answer in two seconds, and
// everything after that at once: from the cache with its age, or a refusal that is not repeated. When the link is back
// all is as before. A link that is slow and loses packets is not taken for a silent one.
func TestSilentLink(t *testing.T) {
	on := newPlane(t)
	u := newOperator(t, on)
	s := forwardSite(t, on)
	s.awaitUsers([]user{u})
	kubeconfig := kubeconfigOf(t, s.cached, u)
	c := u.at(t, restConfig(t, s.cached))
	kubectl := func(args string) output { // each starts with an empty cache of discovery
		return s.kubectl(kubeconfig, args+" --cache-dir="+filepath.Join(t.TempDir(), "cache"))
	}
	for _, args := range silentCommands { // the decisions are remembered
		got := kubectl(args)
		require.Zero(t, got.code, "%s: %s", args, got.stderr)
	}
	for _, o := range outages {
		if o.name == "packets dropped" && os.Getuid() != 0 {
			t.Log("without root packets can't be dropped")
			continue
		}
		for _, first := range o.first {
			t.Run(o.name+", first "+first.name, func(t *testing.T) {
				s := s.in(t)
				s.awaitLink(c)
				o.begin(t, s)
				defer o.end(t, s)
				limit := silentLimit
				if first.method != http.MethodGet && o.name != "refused" {
					limit += 5 * time.Second // it may have been done
				}
				s.requireAnswer(c, first, limit, o.name == connectionsLost)
				if o.name == connectionsLost {
					return
				}
				for _, x := range silentRequests {
					s.requireAnswer(c, x, refusedLimit, false)
				}
				status, err := s.agent.status.Status(t.Context())
				require.NoError(t, err)
				require.Positive(t, status.Agent.SilentSeconds)
				require.Contains(t, status.Agent.ServerText(), ", no answer for ")
			})
		}
		t.Run(o.name+", kubectl", func(t *testing.T) {
			s := s.in(t)
			s.awaitLink(c)
			o.begin(t, s)
			defer o.end(t, s)
			for _, args := range silentCommands {
				began := time.Now()
				got := kubectl(args)
				took := time.Since(began)
				t.Logf("%s: %s: %d after %s", o.name, args, got.code, took.Round(time.Millisecond))
				if !strings.HasPrefix(args, "create") {
					require.Zero(t, got.code, "%s: %s", args, got.stderr)
				}
				require.Less(t, took, silentLimit+3*time.Second, "%s: %s", args, got.stderr) // it is slow to start
			}
		})
	}
	t.Run("slow", func(t *testing.T) {
		s := s.in(t)
		s.awaitLink(c)
		s.link.Down()
		s.link.Slow(150 * time.Millisecond)
		s.link.Up()
		s.awaitLink(c)
		before := len(s.log())
		for range 5 {
			for _, x := range silentRequests {
				began := time.Now()
				code := s.ask(c, x).StatusCode
				t.Logf("slow: %s: %d after %s", x.name, code, time.Since(began).Round(time.Millisecond))
				require.Equal(t, x.online, code, x.name)
				require.Less(t, time.Since(began), 3*time.Second)
			}
		}
		for _, args := range silentCommands {
			began := time.Now()
			got := kubectl(args)
			t.Logf("slow: %s: %d after %s", args, got.code, time.Since(began).Round(time.Millisecond))
			require.Zero(t, got.code, "%s: %s", args, got.stderr)
		}
		require.NotContains(t, s.log()[before:], "may not be reached")
	})
	require.Contains(t, s.log(), "the server may not be reached")
	require.Contains(t, s.log(), "the server answers again")
}

// log returns the agent's log.
func (s *site) log() string { return string(harness.ReadFile(s.t, filepath.Join(s.dir, "log"))) }

// in returns the same site for a subtest.
func (s *site) in(t *testing.T) *site {
	in := *s
	in.t = t
	return &in
}

var silentCommands = []string{
	"get pods -n ns", "get pods -n ns", "describe node n", "auth can-i list pods -n ns", "create configmap c -n ns --dry-run=server", "get --raw /apis",
}

// silentRequest is a request with the codes of its answers.
type silentRequest struct {
	name, method, path string
	online, offline    int
}

var silentRequests = []silentRequest{
	{"cached", "GET", "/api/v1/namespaces/ns/pods", 200, 200},
	{"discovery", "GET", "/apis", 200, 200},
	{"not cached", "GET", "/api/v1/namespaces/ns/services", 200, 503},
	{"write", "POST", "/api/v1/namespaces/ns/configmaps?dryRun=All", 201, 503},
}

func (s *site) ask(c *caller, x silentRequest) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), x.method, c.base+x.path, strings.NewReader(`{"metadata":{"name":"a"}}`))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	a, err := c.http.Do(r)
	require.NoError(s.t, err)
	_ = a.Body.Close()
	return a
}

// requireAnswer asks during an outage. If the answer may be the server's, it can have either code. The first write may
// have been sent on a connection whose end the agent did not know yet, and have been done.
func (s *site) requireAnswer(c *caller, x silentRequest, limit time.Duration, either bool) {
	s.t.Helper()
	began := time.Now()
	a := s.ask(c, x)
	took := time.Since(began)
	s.t.Logf("%s: %d after %s, age %q", x.name, a.StatusCode, took.Round(time.Millisecond), a.Header.Get("Age"))
	require.Less(s.t, took, limit, x.name)
	codes := []int{x.offline}
	if either {
		codes = append(codes, x.online)
	}
	if limit > refusedLimit && x.method != http.MethodGet {
		codes = append(codes, http.StatusBadGateway)
	}
	require.Contains(s.t, codes, a.StatusCode, x.name)
	if a.StatusCode != x.online {
		require.Empty(s.t, a.Header.Get("Retry-After"), "client-go would repeat it for nothing")
	} else if x.name == "cached" && !either && took > time.Second {
		require.NotEqual(s.t, "0", a.Header.Get("Age"))
	}
}

// awaitLink waits until everything is answered as without an outage.
func (s *site) awaitLink(c *caller) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		for _, x := range silentRequests {
			if a := s.ask(c, x); a.StatusCode != x.online || x.name == "cached" && a.Header.Get("Age") != "0" {
				return false
			}
		}
		return true
	}, patience, 10*pollEvery, "the link is back")
}

func signalServer(sig syscall.Signal) func(*testing.T, *site) {
	return func(t *testing.T, s *site) { require.NoError(t, syscall.Kill(s.APIServerPID(), sig)) }
}

func tableOf(s *site) string {
	return "snapcache-" + s.link.Address[strings.LastIndexByte(s.link.Address, ':')+1:]
}

// dropPackets drops all packets to the link, as a router that has lost its way does.
func dropPackets(t *testing.T, s *site) {
	t.Helper()
	table := tableOf(s)
	port := strings.TrimPrefix(table, "snapcache-")
	nft(t, "add", "table", "inet", table)
	nft(t, "add", "chain", "inet", table, "in", "{ type filter hook input priority 0 ; }")
	nft(t, "add", "rule", "inet", table, "in", "tcp", "dport", port, "drop")
	nft(t, "add", "rule", "inet", table, "in", "tcp", "sport", port, "drop")
}

func nft(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput() //nolint:noctx // it ends after the test's context, too
	require.NoError(t, err, "%s", out)
}

// newOperator makes a few objects, and a service account with all rights.
func newOperator(t *testing.T, on *plane) user {
	t.Helper()
	client, ctx := harness.Clientset(t, on.RESTConfig(controlplane.Admin)), t.Context()
	meta := metav1.ObjectMeta{Name: "operator", Namespace: "ns"}
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().Pods("ns").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().ServiceAccounts("ns").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "ns", Name: "operator"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := client.CoreV1().ServiceAccounts("ns").CreateToken(ctx, "operator", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return user{"operator", token.Status.Token}
}
