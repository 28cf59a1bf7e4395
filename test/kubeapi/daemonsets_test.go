package kubeapi

import (
	"context"
	"flag"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/consistencydetector"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

var daemonSetNodes = flag.Int("daemonsets.nodes", 0, "the `number` of nodes of TestDaemonSets; 0 to skip it")

// needsMeasuring skips a test whose figures depend on everything else that the machine does, unless it was asked for.
func needsMeasuring(t *testing.T) {
	t.Helper()
	if *daemonSetNodes == 0 {
		t.Skip("it measures CPU, and runs by itself: make test-daemonsets")
	}
}

const (
	// agentNodes are the nodes with a real agent. The agents of the others are [recordedAgents].
	agentNodes = 2

	// rounds is how often the programs restart at their agents: the server's own work, such as a garbage collection,
	// is in some rounds and not in others, and the median has little of it.
	rounds = 5

	// window is how long a round is measured: an agent may send a request about two seconds after a read.
	window = 5 * time.Second
)

// programList is what a program lists and watches.
type programList struct {
	schema.GroupVersionResource
	own bool // only what is of the node
}

// programLists are the lists of five programs of a node, as the programs of TestNode, TestPrometheus
// and TestOthers send them: a collector with three pipelines, kube-proxy, CoreDNS, Prometheus and a
// network plugin. All of them have informers of client-go, which ask for the most recent state since
// its version 0.35.
func programLists() map[string][]programList {
	core := corev1.SchemeGroupVersion.WithResource
	endpoints := programList{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), false}
	own, services := programList{core("pods"), true}, programList{core("services"), false}
	nodes, namespaces := programList{core("nodes"), false}, programList{core("namespaces"), false}
	return map[string][]programList{
		"collector":  {own, own, own, namespaces},
		"kube-proxy": {services, endpoints, nodes},
		"coredns":    {services, endpoints, namespaces},
		"prometheus": {own, services, endpoints, nodes},
		"network":    {own, nodes, namespaces},
	}
}

// fleetPrograms are programs of nodes, each with a connection of its own.
type fleetPrograms struct {
	t      *testing.T
	cancel context.CancelFunc
	synced []cache.InformerSynced
	wg     sync.WaitGroup
}

// startPrograms starts the five programs of each node at once; config returns their server.
func startPrograms(t *testing.T, nodes int, config func(node int) *rest.Config) *fleetPrograms {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &fleetPrograms{t: t, cancel: cancel}
	for node := range nodes {
		for name, lists := range programLists() {
			c := rest.CopyConfig(config(node))
			c.UserAgent, c.ContentType, c.QPS, c.Burst = name+"/1", "application/vnd.kubernetes.protobuf", -1, 0
			c.Dial = new(net.Dialer).DialContext // a connection of its own
			client := harness.Clientset(t, c)
			for _, l := range lists {
				inf := informerOf(t, client, l, objects.NodeName(node))
				require.NoError(t, inf.SetTransform(onlyName)) // the objects of a whole fleet are in one process here
				p.synced = append(p.synced, inf.HasSynced)
				p.wg.Go(func() { inf.RunWithContext(ctx) })
			}
		}
	}
	t.Cleanup(p.stop)
	return p
}

// onlyName returns an object that has nothing but the name of another one.
func onlyName(o any) (any, error) {
	m, ok := o.(metav1.Object)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(),
	}}, nil
}

func informerOf(t *testing.T, client kubernetes.Interface, l programList, node string) cache.SharedIndexInformer {
	t.Helper()
	narrow := func(o *metav1.ListOptions) {
		if l.own {
			o.FieldSelector = "spec.nodeName=" + node
		}
	}
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(narrow))
	inf, err := f.ForResource(l.GroupVersionResource)
	require.NoError(t, err)
	return inf.Informer()
}

// wait waits until all have synced.
func (p *fleetPrograms) wait() {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		return !slices.ContainsFunc(p.synced, func(has cache.InformerSynced) bool { return !has() })
	}, 2*patience, 10*time.Millisecond)
}

func (p *fleetPrograms) stop() {
	p.cancel()
	p.wg.Wait()
}

// TestDaemonSets restarts five programs of each node of a fleet at once, first with direct
// connections, then at the agents of their nodes. The leases of the nodes are renewed meanwhile, so
// that the server's resourceVersion is ahead of every collection. At the agents, the kube-apiserver
// sees no list of objects, and a node receives nothing but the answers to the probes. A change
// reaches a program through the agent as soon as without it, but for milliseconds.
func TestDaemonSets(t *testing.T) {
	needsMeasuring(t)
	// Else informers of this process list after each list of their own, to compare both.
	t.Cleanup(consistencydetector.SetDataConsistencyDetectionForWatchListEnabledForTest(false))
	nodes := *daemonSetNodes
	require.Greater(t, nodes, agentNodes)
	f := newAuditedFleet(t)
	require.NoError(t, objects.Seed(t.Context(), f.plane.ControlPlane, objects.SeedOptions{
		Pods: 24 * nodes, Services: 400, EndpointSlices: 400, Nodes: nodes, Namespaces: 40,
	}))
	f.renewLeases(nodes)
	link := harness.NetworkOf(t, harness.Kubeconfig(t, f.plane.ControlPlane, controlplane.Admin))
	server := restConfig(t, link.Kubeconfig)
	direct := func(int) *rest.Config { return server }
	startPrograms(t, agentNodes, direct).stop() // the server's caches are warm

	var running *fleetPrograms
	one := f.measure(link.Received, func() {
		running = startPrograms(t, nodes, direct)
		running.wait()
	})
	running.stop()
	require.Equal(t, 17*nodes, one.count(byProgram, wholeList), "lists of the programs: %v", one.counts())

	var sites []*site
	for i := range agentNodes {
		of := func(s *site) { s.access, s.node = true, objects.NodeName(i) }
		sites = append(sites, newSiteOf(t, f.plane, nil, of))
	}
	for _, s := range sites {
		(&node{workload: &workload{t: t}, site: s}).awaitCaughtUp()
	}
	received := func() (n int64) {
		for _, s := range sites {
			n += s.link.Received()
		}
		return n
	}
	cached := func(node int) *rest.Config { return restConfig(t, sites[node].cached) }
	var recorded phase
	for range 2 { // the agents send requests of their own soon after their start
		recorded = f.measure(received, func() {
			running = startPrograms(t, agentNodes, cached)
			running.wait()
		})
		running.stop()
	}
	t.Logf("recorded: %v, synced after %s", recorded.counts(), recorded.took.Round(time.Millisecond))
	agents := newRecordedAgents(t, f.plane, recorded, nodes)
	var idle, two []phase
	var synced []time.Duration
	for range rounds {
		idle = append(idle, f.measure(received, func() {}))
		two = append(two, f.measure(received, func() {
			replayed := agents.replay()
			began := time.Now()
			running = startPrograms(t, agentNodes, cached)
			running.wait()
			synced = append(synced, time.Since(began))
			replayed()
		}))
		running.stop()
	}
	for _, p := range append(two, recorded) {
		t.Logf("at the agents: %v, %s of the server's CPU, %d bytes to a node", p.counts(), p.cpu, p.bytes/agentNodes)
		require.Zero(t, p.count(byProgram, ""), "requests of programs: %v", p.counts())
		require.Zero(t, p.count(byAgent, wholeList), "lists of agents: %v", p.counts())
		requireFewProbes(t, p)
	}

	rest := median(idle, func(p phase) int64 { return int64(p.cpu) * int64(time.Second) / int64(p.length) }) // a second
	cost := func(p phase) int64 { return int64(p.cpu) - rest*int64(p.length)/int64(time.Second) }
	before, after := time.Duration(cost(one)), time.Duration(median(two, cost))
	bytes := median(two, func(p phase) int64 { return p.bytes / agentNodes })
	t.Logf("%d nodes directly: %v, %s of the server's CPU, %d bytes to a node, synced after %s",
		nodes, one.counts(), before, one.bytes/int64(nodes), one.took.Round(time.Millisecond))
	t.Logf("%d nodes at their agents: %s of the server's CPU (1/%.0f), %d bytes to a node (1/%d); idle: %s a second",
		nodes, after, before.Seconds()/after.Seconds(), bytes, one.bytes/int64(nodes)/bytes, time.Duration(rest))
	t.Logf("synced at the agents after %s", synced)
	for _, kind := range []string{probe, doubt} {
		const n = 400
		p := f.measure(received, func() { agents.send(kind, n) })
		t.Logf("%d %s: %s of the server's CPU each", n, kind, (time.Duration(cost(p)) / n).Round(time.Microsecond))
	}
	require.LessOrEqual(t, bytes, one.bytes/int64(nodes)/5, "bytes on a node's link")

	through, without := delays(t, f.plane.ControlPlane, cached(0), server)
	t.Logf("a change reaches a program: p50 %s and p99 %s through the agent, %s and %s directly",
		through[len(through)/2], through[len(through)*99/100], without[len(without)/2], without[len(without)*99/100])
	require.LessOrEqual(t, through[len(through)*99/100], without[len(without)*99/100]+5*time.Millisecond)
	// It was 1/21: two probes and a check of each collection are 15 requests a node, which take the server 10 ms.
	require.LessOrEqual(t, after, before/10, "the server's CPU")
}

// requireFewProbes requires that the agents sent no more probes in a round than the contract needs.
// Each list that asks for the most recent state needs a probe that begins after it, and shares one
// with the others that came since the probe before began: at least one a collection, at most one a
// list.
func requireFewProbes(t *testing.T, p phase) {
	t.Helper()
	lists := map[string]int{} // of the programs of a node, by resource
	for _, all := range programLists() {
		for _, l := range all {
			lists[l.Resource]++
		}
	}
	probes := map[string]int{}
	for _, a := range p.asked {
		if a.by() == byAgent && a.kind() == probe {
			probes[a.ObjectRef.Resource]++
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(lists)), slices.Collect(maps.Keys(probes)))
	for resource, n := range probes {
		require.GreaterOrEqual(t, n, agentNodes, resource)
		require.LessOrEqual(t, n, agentNodes*lists[resource], resource)
	}
	require.LessOrEqual(t, p.count(byAgent, doubt), agentNodes*len(lists), "checks")
}

// median returns the median of a value of the phases.
func median(of []phase, value func(phase) int64) int64 {
	all := make([]int64, len(of))
	for i, p := range of {
		all[i] = value(p)
	}
	slices.Sort(all)
	return all[len(all)/2]
}
