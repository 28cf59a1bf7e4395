package kubeapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// seededPods is some pages of a list.
const seededPods = 3000

// TestFleetSeed has a new spoke whose link breaks several times during its first list. It catches up
// by the hubs alone, and a page that has arrived does not come again.
func TestFleetSeed(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(rand.Uint64(), 0)) //nolint:gosec // choices of a test
	f := newFleet(t, random, fleetOptions{spokes: 2, limited: map[int]string{1: "left"}})
	require.NoError(t, objects.SeedPodsDirect(t.Context(), f.on.ControlPlane, seededPods))
	f.awaitInStep("seeded")

	whole, breaks := f.seed()
	require.Zero(t, breaks)
	f.breaks = []int64{whole * 6 / 10, whole * 3 / 10}
	broken, left := f.seed()
	require.Zero(t, left, "connections that did not break")
	t.Logf("%d bytes, and %d over %d connections that broke", whole, broken, len(f.breaks))
	// A connection breaks in two pages, of six, at most. If each began with the first page again, 9/10
	// would come twice.
	require.Less(t, broken, whole+whole*8/10)
	f.requireNoneDirect()

	f.requireNothingElse(f.tokens[1], "left", "shop-0")
}

// seed starts a spoke without a file, waits until it has caught up, and returns what came over its link.
func (f *fleet) seed() (received int64, breaks int) {
	f.t.Helper()
	s := f.newSpoke(0, f.tokens[0], "")
	of := s.resources[1]
	err := wait.PollUntilContextTimeout(f.t.Context(), 5*pollEvery, 2*patience, true, func(context.Context) (bool, error) {
		c := s.collection(of.Resource)
		return c.CaughtUp && c.Objects >= seededPods, nil
	})
	require.NoError(f.t, err, "%+v", s.collection(of.Resource))
	received, breaks = s.link.Received(), s.link.Breaks()
	want, _ := f.spokes[0].read(of)
	have, synced := s.read(of)
	require.True(f.t, synced)
	require.Equal(f.t, want.objects, have.objects)
	for _, l := range s.lists() {
		require.Equal(f.t, "initial", l.reason)
	}
	s.stop()
	return received, breaks
}

// TestFleetSeedHub has a third hub without a volume, while objects change. It catches up by the other hubs
// and serves a new spoke, and neither lists at the kube-apiserver.
func TestFleetSeedHub(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(rand.Uint64(), 0)) //nolint:gosec // choices of a test
	f := newFleet(t, random, fleetOptions{spokes: 1})
	require.NoError(t, objects.SeedPodsDirect(t.Context(), f.on.ControlPlane, seededPods))
	f.awaitInStep("seeded")
	f.churn()
	third := f.newSeededHub()
	third.awaitCaughtUp()
	third.requireSeeded()

	hubs := f.hubs
	f.hubs = []*hub{third}
	f.spokes = append(f.spokes, f.newSpoke(0, f.tokens[0], ""))
	f.hubs = slices.Concat(hubs, f.hubs)
	f.quiet("with a third hub")
	f.check(nil)
}

// newSeededHub starts a hub whose server is the kube-apiserver, and whose first lists come from the others.
func (f *fleet) newSeededHub() *hub {
	f.t.Helper()
	f.kubectl("create", "serviceaccount", "hub", "-n", "fleet")
	f.kubectl("create", "clusterrolebinding", "hub", "--clusterrole=cluster-admin", "--serviceaccount=fleet:hub")
	config := f.spokeConfig(f.kubectl("create", "token", "hub", "-n", "fleet"))
	const server = "apiserver"
	config.Clusters[server], config.Contexts[server] = config.Clusters[directContext], config.Contexts["hubs"]
	config.Contexts[server].Cluster, config.CurrentContext = server, server
	for _, name := range []string{"hubs", directContext} {
		delete(config.Clusters, name)
		delete(config.Contexts, name)
	}
	path := filepath.Join(f.t.TempDir(), "hub.kubeconfig")
	require.NoError(f.t, clientcmd.WriteToFile(*config, path))
	return &hub{site: newSiteOf(f.t, f.on, f.hubs[0].resources, func(s *site) {
		s.access, s.api, s.server, s.seed = true, f.hubs[0].api, path, f.newHubLink()
	})}
}

func (f *fleet) kubectl(args ...string) string {
	f.t.Helper()
	return strings.TrimSpace(string(harness.Kubectl(f.t, f.on.ControlPlane, args...)))
}

// awaitIdentity waits until the hubs let a user read the identity of the cluster. A refusal of before counts
// for a minute.
func (f *fleet) awaitIdentity(token string) {
	f.t.Helper()
	for _, h := range f.hubs {
		config := restConfig(f.t, h.cached)
		config.BearerToken = token
		client := harness.Clientset(f.t, config)
		err := wait.PollUntilContextTimeout(f.t.Context(), 5*pollEvery, 2*patience, true, func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
			return err == nil, nil
		})
		require.NoError(f.t, err)
	}
}

// requireSeeded requires that an agent has listed each resource once, from its seed.
func (s *site) requireSeeded() {
	s.t.Helper()
	lists := s.lists()
	require.Len(s.t, lists, len(s.resources))
	for _, l := range lists {
		require.Equal(s.t, "https://"+s.seed.Address, l.seed, "%+v", l)
	}
}

// TestFleetSeedFallback has new spokes that use the kube-apiserver, because they don't reach the hubs where
// their current context is. They begin with what the hubs have, by another context, while objects change.
// One may read a single namespace, and gets nothing else.
func TestFleetSeedFallback(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(rand.Uint64(), 0)) //nolint:gosec // choices of a test
	f := newFleet(t, random, fleetOptions{spokes: 2, limited: map[int]string{1: "left"}})
	f.kubectl("create", "clusterrole", "identity", "--verb=get", "--resource=namespaces", "--resource-name=kube-system")
	f.kubectl("create", "clusterrolebinding", "identity", "--clusterrole=identity", "--group=system:serviceaccounts:fleet")
	require.NoError(t, objects.SeedPodsDirect(t.Context(), f.on.ControlPlane, seededPods))
	f.awaitInStep("seeded")
	f.awaitIdentity(f.tokens[1])
	f.churn()
	for i, only := range []string{"", "left"} {
		f.spokes = append(f.spokes, f.newSpoke(i, f.tokens[i], only, func(s *site) {
			s.seed = f.newHubLink()
			s.link.Down()
		}))
	}
	seeded := f.spokes[2:]
	for _, s := range seeded {
		s.awaitServer("https://" + s.direct.Address)
	}
	stranger := f.newSpoke(1, f.tokens[1], "", func(s *site) { s.seed = f.newHubLink() })
	f.pause()
	f.awaitInStep("by a seed")
	for _, s := range seeded {
		require.Equal(t, 1.0, s.fallback(), s.name)
		s.requireSeeded()
		for _, r := range s.resources {
			o, _ := s.read(r)
			require.NotEmpty(t, o.objects)
			require.EqualValues(t, len(o.objects), s.collection(r.Resource).Objects, "%s: %s", s.name, r.Resource)
		}
	}
	require.Less(t, seeded[1].collection("pods").Objects, int64(seededPods))
	require.Equal(t, "forbidden", stranger.collection("pods").ProblemKind)
	require.False(t, stranger.collection("pods").Synced)
	f.check(nil)
}

// requireNothingElse requires that a user of one namespace gets nothing of another one from a hub, by any
// request.
func (f *fleet) requireNothingElse(token, own, other string) {
	f.t.Helper()
	config := restConfig(f.t, f.hubs[0].cached)
	config.BearerToken, config.DisableCompression = token, true
	client, err := rest.HTTPClientFor(config)
	require.NoError(f.t, err)
	defer client.CloseIdleConnections()
	const watch = "watch=1&allowWatchBookmarks=true&timeoutSeconds=1"
	for _, tt := range []struct {
		name, path string
		code       int
	}{
		{"list of all", "/api/v1/pods?resourceVersion=0", http.StatusForbidden},
		{"page of all", "/api/v1/pods?limit=500", http.StatusForbidden},
		{"another namespace", "/api/v1/namespaces/" + other + "000/pods?resourceVersion=0", http.StatusForbidden},
		{"all by a field", "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.namespace%3D" + own, http.StatusForbidden},
		{"watch of all", "/api/v1/pods?resourceVersion=0&" + watch, http.StatusForbidden},
		{"resume of all", "/api/v1/pods?resourceVersion=1&" + watch, http.StatusForbidden},
		{"own list", "/api/v1/namespaces/" + own + "/pods?resourceVersion=0", http.StatusOK},
		{"own watch", "/api/v1/namespaces/" + own + "/pods?resourceVersion=0&" + watch, http.StatusOK},
		{"own resume", "/api/v1/namespaces/" + own + "/pods?resourceVersion=%d&" + watch, http.StatusOK},
		{"own list by another's field", "/api/v1/namespaces/" + own + "/pods?resourceVersion=0&fieldSelector=metadata.namespace%3D" + other + "000", http.StatusOK},
	} {
		for _, encoding := range []string{"identity", "zstd, gzip"} {
			path := tt.path
			if tt.name == "own resume" {
				path = fmt.Sprintf(path, f.spokes[0].seen["pods"]-100) // before the last seeded pods
			}
			r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "https://"+f.hubs[0].address+path, nil)
			require.NoError(f.t, err)
			r.Header.Set("Accept-Encoding", encoding)
			resp, err := client.Do(r)
			require.NoError(f.t, err)
			body := readUnpacked(f.t, resp)
			require.Equal(f.t, tt.code, resp.StatusCode, "%s: %s", tt.name, body)
			require.NotContains(f.t, body, `"namespace":"`+other, tt.name)
		}
	}
}

// readUnpacked reads an answer, which may be packed.
func readUnpacked(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	switch resp.Header.Get("Content-Encoding") {
	case "zstd":
		d, err := zstd.NewReader(bytes.NewReader(body))
		require.NoError(t, err)
		defer d.Close()
		body, err = io.ReadAll(d)
		require.NoError(t, err)
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(body))
		require.NoError(t, err)
		body, err = io.ReadAll(z)
		require.NoError(t, err)
	}
	return string(body)
}
