package kubeapi

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

var daemonSetNodes = flag.Int("daemonsets.nodes", 0, "the `number` of nodes of TestDaemonSets; 0 to skip it")

// agentNodes are the nodes with a real agent. Those of the others send nothing when a program restarts, as the test finds
// for these.
const agentNodes = 2

// programList is what a program lists and watches.
type programList struct {
	schema.GroupVersionResource
	own bool // only what is of the node
}

// programLists are the lists of five programs of a node, as the programs of TestNode, TestPrometheus and TestOthers send
// them: a collector with three pipelines, kube-proxy, CoreDNS, Prometheus and a network plugin.
func programLists() map[string][]programList {
	core := corev1.SchemeGroupVersion.WithResource
	endpoints := programList{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), false}
	own, services, nodes, namespaces := programList{core("pods"), true}, programList{core("services"), false}, programList{core("nodes"), false}, programList{core("namespaces"), false}
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
				p.synced = append(p.synced, inf.HasSynced)
				p.wg.Go(func() { inf.RunWithContext(ctx) })
			}
		}
	}
	t.Cleanup(p.stop)
	return p
}

func informerOf(t *testing.T, client kubernetes.Interface, l programList, node string) cache.SharedIndexInformer {
	t.Helper()
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		if l.own {
			o.FieldSelector = "spec.nodeName=" + node
		}
	}))
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

// cost is what the kube-apiserver had with a restart.
type cost struct {
	lists, watches int // that have ended, and that were opened
	cpu            time.Duration
	bytes          int64
	took           time.Duration
}

// costOf measures the kube-apiserver while fn runs, and two seconds longer. received are the bytes on the links.
func costOf(t *testing.T, cp *controlplane.ControlPlane, received func() int64, fn func()) cost {
	t.Helper()
	before, err := cp.RequestTotals(t.Context())
	require.NoError(t, err)
	time.Sleep(time.Second) // the metrics' own CPU
	cpu, bytes, began := cpuOf(t, cp.APIServerPID()), received(), time.Now()
	fn()
	took := time.Since(began)
	time.Sleep(2 * time.Second)
	c := cost{cpu: cpuOf(t, cp.APIServerPID()) - cpu, bytes: received() - bytes, took: took}
	after, err := cp.RequestTotals(t.Context())
	require.NoError(t, err)
	since := after.Since(before)
	for _, resource := range []string{"pods", "services", "endpointslices", "nodes", "namespaces"} {
		c.lists += since.Count("LIST", resource)
		c.watches += since.Count("WATCH", resource) + after.Open(resource) - before.Open(resource)
	}
	return c
}

// cpuOf returns the CPU time of a process, from the kernel's ticks of 10 ms.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	text := string(harness.ReadFile(t, fmt.Sprintf("/proc/%d/stat", pid)))
	f := strings.Fields(text[strings.LastIndex(text, ")")+1:])
	user, err := strconv.Atoi(f[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(f[12])
	require.NoError(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// TestDaemonSets restarts five programs of each node of a fleet at once, first with direct connections, then at the agents
// of their nodes. At the agents, the kube-apiserver sees no list and no watch of it, and a node receives nothing but the
// changes. A change reaches a program through the agent as soon as without it, but for milliseconds.
func TestDaemonSets(t *testing.T) {
	if *daemonSetNodes == 0 {
		t.Skip("it wants a quiet machine: make test-daemonsets")
	}
	nodes := *daemonSetNodes
	on := newPlane(t)
	require.NoError(t, objects.Seed(t.Context(), on.ControlPlane, objects.SeedOptions{
		Pods: 24 * nodes, Services: 400, EndpointSlices: 400, Nodes: nodes, Namespaces: 40,
	}))
	server := harness.Kubeconfig(t, on.ControlPlane, controlplane.Admin)
	link := harness.NetworkOf(t, server)
	direct := restConfig(t, link.Kubeconfig)
	startPrograms(t, nodes, func(int) *rest.Config { return direct }).stop() // the server's caches are warm
	var running *fleetPrograms
	one := costOf(t, on.ControlPlane, link.Received, func() {
		running = startPrograms(t, nodes, func(int) *rest.Config { return direct })
		running.wait()
	})
	running.stop()

	var sites []*site
	for i := range agentNodes {
		sites = append(sites, newSiteOf(t, on, nil, func(s *site) { s.access, s.node = true, objects.NodeName(i) }))
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
	first := startPrograms(t, agentNodes, cached)
	first.wait()
	first.stop()
	idle := costOf(t, on.ControlPlane, received, func() { time.Sleep(one.took) })
	two := costOf(t, on.ControlPlane, received, func() {
		running = startPrograms(t, agentNodes, cached)
		running.wait()
		time.Sleep(max(0, one.took-time.Second)) // as long as the others, about
	})
	require.Zero(t, two.lists, "lists at the kube-apiserver")
	require.Zero(t, two.watches, "watches at the kube-apiserver")
	require.Positive(t, one.watches, "none was seen, so that their absence proves nothing")
	perNode := func(c cost, n int) string {
		return fmt.Sprintf("%d lists, %d watches, %s of the apiserver's CPU, %d bytes to a node, synced after %s",
			c.lists/n, c.watches/n, c.cpu/time.Duration(n), c.bytes/int64(n), c.took.Round(time.Millisecond))
	}
	t.Logf("%d nodes directly, for a node: %s", nodes, perNode(one, nodes))
	t.Logf("%d nodes at their agents, for a node: %s", agentNodes, perNode(two, agentNodes))
	t.Logf("without programs: %s of the apiserver's CPU, %d bytes", idle.cpu, idle.bytes)
	require.LessOrEqual(t, two.cpu-idle.cpu, one.cpu/50+50*time.Millisecond, "the apiserver's CPU, within five ticks of the kernel")
	require.LessOrEqual(t, two.bytes/agentNodes, one.bytes/int64(nodes)/5, "bytes on a node's link")

	through, without := delays(t, on.ControlPlane, cached(0), direct)
	t.Logf("a change reaches a program: p50 %s and p99 %s through the agent, %s and %s directly",
		through[len(through)/2], through[len(through)*99/100], without[len(without)/2], without[len(without)*99/100])
	require.LessOrEqual(t, through[len(through)*99/100], without[len(without)*99/100]+5*time.Millisecond)
}

// delays returns the times from the write of a change to the handlers of two informers at different servers, sorted.
func delays(t *testing.T, cp *controlplane.ControlPlane, configs ...*rest.Config) (through, without []time.Duration) {
	t.Helper()
	const changes, mark = 500, "example.com/change"
	admin := harness.Clientset(t, cp.RESTConfig(controlplane.Admin))
	services, err := admin.CoreV1().Services("").List(t.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	of := &services.Items[0]
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var mu sync.Mutex
	arrived := make([]map[string]time.Time, len(configs))
	for i, c := range configs {
		arrived[i] = map[string]time.Time{}
		inf := informerOf(t, harness.Clientset(t, c), programList{corev1.SchemeGroupVersion.WithResource("services"), false}, "")
		_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, o any) {
			mu.Lock()
			defer mu.Unlock()
			arrived[i][o.(*corev1.Service).Annotations[mark]] = time.Now()
		}})
		require.NoError(t, err)
		wg.Go(func() { inf.RunWithContext(ctx) })
		require.True(t, cache.WaitForCacheSync(ctx.Done(), inf.HasSynced))
	}
	written := map[string]time.Time{}
	for i := range changes {
		name := strconv.Itoa(i)
		written[name] = time.Now()
		_, err := admin.CoreV1().Services(of.Namespace).Patch(t.Context(), of.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, mark, name), metav1.PatchOptions{})
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(arrived, func(m map[string]time.Time) bool { return m[strconv.Itoa(changes-1)].IsZero() })
	}, patience, pollEvery)
	cancel()
	wg.Wait()
	times := func(at map[string]time.Time) (all []time.Duration) {
		for name, arrival := range at {
			all = append(all, arrival.Sub(written[name]))
		}
		slices.Sort(all)
		return all
	}
	require.Len(t, arrived[1], changes)
	return times(arrived[0]), times(arrived[1])
}
