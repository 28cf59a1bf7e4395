package kubeapi

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

var killsSeed = flag.Uint64("kills.seed", 0, "what the random choices of TestKills begin with; 0 for a new one each time")

// killMax is the longest time from when an agent accepts connections to its end.
const killMax = 500 * time.Millisecond

// killed is an agent that is killed again and again, and what happened to it.
type killed struct {
	*site
	cp      *controlplane.ControlPlane
	client  dynamic.Interface // of the kube-apiserver
	clients *harness.Network  // from the clients to the agent
	random  *rand.Rand

	kills, stops, restarts, linkCuts, clientCuts int

	resumes map[string]int // by tier
}

// TestKills has clients that watch an agent which is killed at any moment, while objects change, its
// kube-apiserver is restarted with etcd compacted, and connections are cut on both sides of it. The
// streams of the clients are compared with the changes that etcd had.
func TestKills(t *testing.T) {
	t.Parallel()
	seed := *killsSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // choices of a test
	}
	t.Logf("the random choices are those of -kills.seed=%d", seed)
	random := func(of uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, of)) } //nolint:gosec // choices of a test
	rounds, restarts, kills := 230, 5, 200                                          // each round ends in a kill, but one of ten in a stop
	if testing.Short() {
		rounds, restarts, kills = 20, 1, 15
	}

	k := newKilled(t, random(1))
	truth := recordTruth(t, k.cp, "configmaps", "pods")
	clients := killsClients(random)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running, changing errgroup.Group
	k.startClients(ctx, &running, clients)
	churnCtx, stopChurn := context.WithCancel(ctx)
	defer stopChurn()
	changing.Go(func() error {
		(&churn{client: k.client, random: random(0)}).run(churnCtx)
		return nil
	})
	for i := range rounds {
		if every := rounds / (restarts + 1); i%every == every-1 && k.restarts < restarts {
			kill := k.restarts%2 == 0
			k.restarts++
			changing.Go(func() error { return restartServer(ctx, k.cp, kill) })
		}
		k.round(i)
	}
	stopChurn()
	require.NoError(t, changing.Wait())
	k.settle()
	histories := k.awaitClients(clients, truth.complete(t, k.cp))
	k.count()
	cancel()
	require.NoError(t, running.Wait())

	expired := k.check(clients, histories)
	require.GreaterOrEqual(t, k.kills, kills)
	require.NotZero(t, expired, "no client got 410")
	require.NotZero(t, k.resumes["exact"])
	require.NotZero(t, k.resumes["coalesced"])
}

// newKilled starts a control plane of its own, with two namespaces, and an agent.
func newKilled(t *testing.T, random *rand.Rand) *killed {
	t.Helper()
	cp := harness.ControlPlane(t, controlplane.Options{})
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	for _, name := range []string{"left", "right"} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		o.SetName(name)
		_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	resources := slices.DeleteFunc(cachedResources(), func(r *resource) bool {
		return r.GroupVersionResource != configMaps && r.GroupVersionResource != pods
	})
	s := newSiteOf(t, &plane{ControlPlane: cp}, resources)
	return &killed{site: s, cp: cp, client: client, clients: harness.NewNetwork(t, s.address), random: random, resumes: map[string]int{}}
}

// startClients starts the clients, which connect through their link.
func (k *killed) startClients(ctx context.Context, running *errgroup.Group, clients []*streamClient) {
	k.t.Helper()
	for _, c := range clients {
		config := restConfig(k.t, k.cached)
		config.Host = "https://" + k.clients.Address
		var err error
		c.target, err = newServerTarget(config)
		require.NoError(k.t, err)
		running.Go(func() error { return c.run(ctx) })
	}
}

// awaitClients waits until each client has what it selects of the changes, and returns what that is.
func (k *killed) awaitClients(clients []*streamClient, changes map[string][]change) []*history {
	k.t.Helper()
	histories := make([]*history, len(clients))
	for i, c := range clients {
		matches, err := c.matcher()
		require.NoError(k.t, err)
		histories[i] = newHistory(changes[c.resource], matches)
		newest := histories[i].newest()
		require.Eventually(k.t, func() bool { return c.complete.Load() >= newest }, patience, pollEvery, "client %s does not get what is before %d", c.name, newest)
	}
	return histories
}

// check checks the streams of the clients, logs what happened, and returns how often there was a 410.
func (k *killed) check(clients []*streamClient, histories []*history) (expired int) {
	k.t.Helper()
	moved := 0
	for i, c := range clients {
		problems, n := checkStreams(histories[i], !c.bookmarks, c.streams)
		moved += n
		expired += c.expired
		k.t.Logf("client %s: %d events of the server, %d streams, %d times 410, other refusals %v", c.name, len(histories[i].events), len(c.streams), c.expired, c.refused)
		if len(problems) > 0 {
			k.t.Errorf("client %s has %d problems:\n%s", c.name, len(problems), strings.Join(problems[:min(len(problems), 20)], "\n"))
		}
		for code := range c.refused {
			require.Contains(k.t, []int{http.StatusTooManyRequests, http.StatusGatewayTimeout}, code, "client %s", c.name)
		}
	}
	log := harness.ReadFile(k.t, filepath.Join(k.dir, "log"))
	lists := strings.Count(string(log), "msg=listed")
	k.t.Logf("%d kills and %d stops of the agent, %d restarts of the kube-apiserver, %d cuts of the agent's link, %d of the clients'; "+
		"%d lists of the agent, %d deletions at a resourceVersion that is not the server's; %d times 410; resumes by tier: %v",
		k.kills, k.stops, k.restarts, k.linkCuts, k.clientCuts, lists, moved, expired, k.resumes)
	require.Greater(k.t, lists, 2, "the agent has not listed again")
	return expired
}

// killsClients returns clients with all kinds of selections and of ways to continue.
func killsClients(random func(uint64) *rand.Rand) []*streamClient {
	all := []*streamClient{
		{name: "configmaps", selection: selection{resource: "configmaps"}},
		{name: "configmaps, cut", selection: selection{resource: "configmaps"}, cuts: true},
		{name: "configmaps, bookmarks", selection: selection{resource: "configmaps"}, bookmarks: true},
		{name: "configmaps, bookmarks, cut", selection: selection{resource: "configmaps"}, bookmarks: true, initial: true, cuts: true},
		{name: "configmaps of a namespace", selection: selection{resource: "configmaps", namespace: "left"}, cuts: true},
		{name: "configmaps by label, from bookmarks", selection: selection{resource: "configmaps", labels: "tier=a"}, bookmarks: true, fromBookmark: true, cuts: true},
		{name: "a configmap by name", selection: selection{resource: "configmaps", fields: "metadata.name=o-3"}, bookmarks: true, initial: true, cuts: true},
		{name: "pods, from bookmarks", selection: selection{resource: "pods"}, bookmarks: true, initial: true, fromBookmark: true, cuts: true},
		{name: "pods by label", selection: selection{resource: "pods", labels: "tier in (a, b)"}, bookmarks: true, cuts: true},
		{name: "pods by label, exact", selection: selection{resource: "pods", labels: "tier!=a"}},
		{name: "pods of a node", selection: selection{resource: "pods", fields: "spec.nodeName=edge-1"}, cuts: true},
		{name: "running pods", selection: selection{resource: "pods", namespace: "right", fields: "status.phase=Running"}, bookmarks: true, initial: true},
		{name: "running pods, from bookmarks", selection: selection{resource: "pods", fields: "status.phase=Running"}, bookmarks: true, fromBookmark: true},
		{name: "configmaps, away", selection: selection{resource: "configmaps"}, bookmarks: true, fromBookmark: true, away: 20 * time.Second},
		{name: "pods by label, away", selection: selection{resource: "pods", labels: "tier"}, bookmarks: true, away: 20 * time.Second},
	}
	for i, c := range all {
		c.random = random(uint64(i) + 10) //nolint:gosec // small
	}
	return all
}

// round starts the agent, and ends it after a while. Meanwhile, and over some rounds, connections are
// cut.
func (k *killed) round(i int) {
	k.t.Helper()
	switch i % 9 {
	case 4:
		k.link.Down()
		k.linkCuts++
	case 6:
		k.link.Up()
	}
	switch i % 10 {
	case 2:
		k.clients.Down()
		k.clientCuts++
	case 4:
		k.clients.Up()
	}
	if k.agent == nil {
		k.start()
	}
	k.sleep()
	if i%10 > 4 && i%2 == 0 {
		k.clients.Down()
		k.clientCuts++
		k.clients.Up()
		k.sleep()
	}
	k.count()
	if i%10 == 3 { // the file is then ahead of the clients, whose link is cut
		k.stops++
		k.stop()
	} else {
		k.kills++
		k.kill()
	}
}

// sleep waits for a random moment to come. The moment is part of the test, it is no synchronisation.
func (k *killed) sleep() {
	select {
	case <-k.t.Context().Done():
	case <-time.After(time.Duration(k.random.Int64N(int64(killMax)))):
	}
}

// restartServer compacts etcd and restarts the kube-apiserver, with or without a warning, so that an
// agent that was behind has to list again.
func restartServer(ctx context.Context, cp *controlplane.ControlPlane, kill bool) error {
	if err := cp.CompactEtcd(ctx); err != nil {
		return err
	}
	if kill {
		if err := cp.KillAPIServer(ctx); err != nil {
			return err
		}
	}
	return cp.RestartAPIServer(ctx)
}

// settle restores all connections, and starts the agent.
func (k *killed) settle() {
	k.t.Helper()
	k.link.Down()
	k.link.Up()
	k.clients.Down()
	k.clients.Up()
	k.start()
}

// count adds the resumes since the agent's start, if it serves its metrics yet.
func (k *killed) count() {
	k.t.Helper()
	resp, err := http.Get("http://" + k.metrics + "/metrics")
	if err != nil {
		return
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(k.t, err)
	for _, m := range families["snapcache_kubernetes_api_resumes_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "tier" {
				k.resumes[l.GetValue()] += int(m.GetCounter().GetValue())
			}
		}
	}
}
