package access

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// allocations is how many allocations a caller may cost whose identity and rights are known. Time is
// noisy, and this is not.
const allocations = 30

// gate is what a request passes on its way to the cache.
type gate struct {
	*world
	*desk
	requests map[string]*http.Request // of each kind of caller
}

// newGate returns a gate with the server that it asks, and cached RBAC objects.
func newGate(t testing.TB) *gate {
	t.Helper()
	g := &gate{world: newWorld(), desk: newDesk(nil)}
	g.desk.clock = g.world.clock
	g.desk.opts.Clock = g.world.clock
	g.world.connected, g.desk.connected = true, true
	g.review = func(string) (authenticationv1.TokenReviewStatus, error) {
		return authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:shop:till", UID: "sa1", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop", authenticated},
			Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {"till-0"}, "authentication.kubernetes.io/pod-uid": {"p1"}, credentialID: {"JTI=j1"}},
		}}, nil
	}
	rules, set := rulesOf(t)
	set("roles", "1234567")
	set("rolebindings", "1234568")
	set("clusterroles", "1234569", rbacObject(t, "ClusterRole", "", "r", map[string]any{
		"rules": []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}))
	set("clusterrolebindings", "1234570", rbacObject(t, "ClusterRoleBinding", "", "b", map[string]any{
		"roleRef": rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, "subjects": []rbacv1.Subject{{Kind: "Group", Name: authenticated}},
	}))
	g.desk.opts.Rules = rules
	for _, user := range []string{"system:serviceaccount:shop:till", "system:node:edge-1"} {
		g.server[user+" list pods"] = true
	}
	cluster := newAuthority(t)
	require.NoError(t, g.SetClientCA(cluster.pem()))
	g.SetKeys(cluster.keys("k1"))
	node := cluster.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:node:edge-1", Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	g.requests = map[string]*http.Request{"token": request(cluster.token("k1", claimsOf(nil))), "certificate": request("", node)}
	return g
}

// pass authenticates and authorizes a request.
func (g *gate) pass(r *http.Request) error {
	c, err := g.Caller(r)
	if err != nil {
		return err
	}
	return g.Authorize(WithCaller(r.Context(), c), ask("list", "pods"))
}

// TestReviewsAreCached: the server is asked once for the identity and once for the right of a caller,
// and not again for a minute, however many requests come.
func TestReviewsAreCached(t *testing.T) {
	g := newGate(t)
	for kind, r := range g.requests {
		require.NoError(t, g.pass(r), kind)
	}
	require.Equal(t, 1, g.world.reviewed, "a certificate is verified here")
	require.Equal(t, 2, g.desk.reviewed)
	for s := range 6000 {
		g.world.clock.SetTime(start.Add(time.Duration(s) * 10 * time.Millisecond))
		for kind, r := range g.requests {
			require.NoError(t, g.pass(r), kind)
		}
	}
	require.Equal(t, 1, g.world.reviewed)
	require.Equal(t, 2, g.desk.reviewed)
	g.world.clock.SetTime(start.Add(time.Minute))
	for _, r := range g.requests {
		require.NoError(t, g.pass(r))
	}
	require.Equal(t, 2, g.world.reviewed, "after that, it is")
	require.Equal(t, 4, g.desk.reviewed)
}

// TestAllocations holds the cost of a known caller to a budget, with the server and without it.
func TestAllocations(t *testing.T) {
	for _, connected := range []bool{true, false} {
		g := newGate(t)
		g.world.connected, g.desk.connected = connected, connected
		for _, r := range g.requests {
			require.NoError(t, g.pass(r))
		}
		for kind, r := range g.requests {
			n := testing.AllocsPerRun(1000, func() { _ = g.pass(r) })
			t.Logf("connected %v, %s: %v allocations", connected, kind, n)
			require.LessOrEqual(t, n, float64(allocations), kind)
		}
	}
}

// BenchmarkHit is the cost of a caller whose identity and rights are known.
func BenchmarkHit(b *testing.B) {
	for _, tc := range []struct {
		name, kind string
		connected  bool
	}{
		{"token", "token", true}, {"certificate", "certificate", true},
		{"token without the server", "token", false}, {"certificate without the server", "certificate", false},
	} {
		b.Run(tc.name, func(b *testing.B) {
			g := newGate(b)
			g.world.connected, g.desk.connected = tc.connected, tc.connected
			b.ReportAllocs()
			for b.Loop() {
				if err := g.pass(g.requests[tc.kind]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
