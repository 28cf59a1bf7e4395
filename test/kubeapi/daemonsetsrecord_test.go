package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	"github.com/snapcache/snapcache/upstream"
)

// asked is a request to the kube-apiserver, as its audit log has it.
type asked struct {
	Stage, Verb, UserAgent, RequestURI string
	RequestReceivedTimestamp           time.Time
	ObjectRef                          struct{ Resource, APIGroup, APIVersion string }
}

// The senders of requests that are counted.
const (
	byProgram  = "a program"
	byAgent    = "an agent"
	byRecorded = "a recorded agent"
)

// The kinds of requests of an agent, by which another agent's are replayed.
const (
	wholeList = "lists"   // of objects, also as the begin of a watch
	probe     = "probes"  // metadata of one object, for the server's resourceVersion
	doubt     = "checks"  // a watch of one second: did the open one miss anything?
	follow    = "watches" // from a resourceVersion
)

// recordedAgent is how the user agent of a recorded agent begins, and programAgent how the ones of
// the programs end.
const (
	recordedAgent = "recorded/"
	programAgent  = "/1"
)

func (a *asked) by() string {
	switch {
	case strings.HasPrefix(a.UserAgent, "snapcache"):
		return byAgent
	case strings.HasPrefix(a.UserAgent, recordedAgent):
		return byRecorded
	case strings.HasSuffix(a.UserAgent, programAgent):
		return byProgram
	}
	return ""
}

func (a *asked) query() url.Values {
	_, query, _ := strings.Cut(a.RequestURI, "?")
	values, _ := url.ParseQuery(query)
	return values
}

// kind returns the kind of a request, or its verb.
func (a *asked) kind() string {
	q := a.query()
	switch {
	case a.Verb == "list" && q.Get("limit") == "1" && q.Get("resourceVersion") == "":
		return probe
	case a.Verb == "list", a.Verb == "watch" && q.Get("sendInitialEvents") == "true":
		return wholeList
	case a.Verb == "watch" && q.Get("timeoutSeconds") == "1":
		return doubt
	case a.Verb == "watch":
		return follow
	}
	return a.Verb
}

// auditedFleet is a fleet at a kube-apiserver with an audit log.
type auditedFleet struct {
	t     *testing.T
	plane *plane
	log   string // path
}

func newAuditedFleet(t *testing.T) *auditedFleet {
	t.Helper()
	log, args := audited(t, t.TempDir())
	return &auditedFleet{t, newPlane(t, args...), log}
}

// leaseEvery is the time between two renewals of a node's lease, as a kubelet's.
const leaseEvery = 10 * time.Second

// renewLeases renews the leases of nodes until the test ends.
func (f *auditedFleet) renewLeases(nodes int) {
	f.t.Helper()
	admin := harness.Clientset(f.t, f.plane.RESTConfig(controlplane.Admin))
	leases := admin.CoordinationV1().Leases(metav1.NamespaceDefault)
	for i := range nodes {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: objects.NodeName(i)}}
		_, err := leases.Create(f.t.Context(), lease, metav1.CreateOptions{})
		require.NoError(f.t, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var renewing sync.WaitGroup
	f.t.Cleanup(func() { cancel(); renewing.Wait() })
	renewing.Go(func() {
		ticker := time.NewTicker(leaseEvery / time.Duration(nodes))
		defer ticker.Stop()
		for i := 0; ctx.Err() == nil; i = (i + 1) % nodes {
			<-ticker.C
			renewed := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
			_, err := leases.Patch(ctx, objects.NodeName(i), types.MergePatchType, renewed, metav1.PatchOptions{})
			if err != nil && ctx.Err() == nil {
				f.t.Errorf("renew a lease: %v", err)
			}
		}
	})
}

// phase has the requests, the CPU time and the bytes of a time in which something ran.
type phase struct {
	asked  []asked // the requests of programs and agents
	cpu    time.Duration
	bytes  int64 // on the links
	took   time.Duration
	began  time.Time
	length time.Duration // of the measurement
}

// measure measures the kube-apiserver while fn runs, and afterwards for [window] in all. received
// are the bytes on the links.
func (f *auditedFleet) measure(received func() int64, fn func()) phase {
	f.t.Helper()
	log, err := os.Stat(f.log)
	require.NoError(f.t, err)
	p := phase{began: time.Now()}
	cpu, had := cpuOf(f.t, f.plane.APIServerPID()), received()
	fn()
	p.took = time.Since(p.began)
	time.Sleep(max(window-p.took, window/2))
	p.length = time.Since(p.began)
	p.cpu, p.bytes = cpuOf(f.t, f.plane.APIServerPID())-cpu, received()-had
	for line := range bytes.Lines(readAll(f.t, f.log, log.Size())) {
		var a asked
		require.NoError(f.t, json.Unmarshal(line, &a))
		begun := a.Verb != "watch" && a.Stage == "ResponseComplete" || a.Stage == "ResponseStarted"
		if begun && a.by() != "" {
			p.asked = append(p.asked, a)
		}
	}
	return p
}

// count returns how many requests of a kind a sender has sent; an empty kind is any.
func (p *phase) count(by, kind string) (n int) {
	for _, a := range p.asked {
		if a.by() == by && (kind == "" || a.kind() == kind) {
			n++
		}
	}
	return n
}

// counts returns the numbers of all requests, by sender and kind.
func (p *phase) counts() map[string]int {
	n := map[string]int{}
	for _, a := range p.asked {
		n[a.kind()+" of "+a.by()]++
	}
	return n
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

// recordedAgents are agents that send the requests which agentNodes real agents sent when the
// programs of their nodes restarted, at the same moments, with the code of the agent and on
// connections of their own.
type recordedAgents struct {
	t     *testing.T
	all   []asked // of the real agents, in their order
	began time.Time
	fleet []*upstream.Cluster // one of each node
}

func newRecordedAgents(t *testing.T, on *plane, of phase, nodes int) *recordedAgents {
	t.Helper()
	r := &recordedAgents{t: t, began: of.began}
	for _, a := range of.asked {
		if a.by() == byAgent {
			require.Contains(t, []string{probe, doubt}, a.kind(), a.RequestURI)
			r.all = append(r.all, a)
		}
	}
	require.NotEmpty(t, r.all)
	for i := agentNodes; i < nodes; i++ {
		c := rest.CopyConfig(on.RESTConfig(controlplane.Admin))
		c.UserAgent, c.Dial = recordedAgent+strconv.Itoa(i), new(net.Dialer).DialContext
		cluster, err := upstream.New(c)
		require.NoError(t, err)
		r.fleet = append(r.fleet, cluster)
		_, err = r.source(cluster, &r.all[0], i).Newest(t.Context()) // it is connected
		require.NoError(t, err)
	}
	return r
}

// source returns the source of a request on another node.
func (r *recordedAgents) source(cluster *upstream.Cluster, a *asked, node int) *upstream.Source {
	of := schema.GroupVersion{Group: a.ObjectRef.APIGroup, Version: a.ObjectRef.APIVersion}.WithResource(a.ObjectRef.Resource)
	selector := a.query().Get("fieldSelector")
	for i := range agentNodes {
		selector = strings.Replace(selector, objects.NodeName(i), objects.NodeName(node), 1)
	}
	return cluster.Source(upstream.SourceOptions{Resource: upstream.Resource{GVR: of}, FieldSelector: selector})
}

// replay has the agents send the requests from now on. The returned function waits for the end.
func (r *recordedAgents) replay() (wait func()) {
	began := time.Now()
	var wg sync.WaitGroup
	for i, cluster := range r.fleet {
		for j := range r.all {
			a := &r.all[j]
			if j%agentNodes != i%agentNodes { // agentNodes agents have sent them all
				continue
			}
			source := r.source(cluster, a, agentNodes+i)
			wg.Go(func() {
				time.Sleep(time.Until(began.Add(a.RequestReceivedTimestamp.Sub(r.began))))
				r.ask(source, a)
			})
		}
	}
	return wg.Wait
}

// ask sends a request of an agent to the server.
func (r *recordedAgents) ask(source *upstream.Source, a *asked) {
	var err error
	if a.kind() == probe {
		_, err = source.Newest(r.t.Context())
	} else {
		_, err = source.Missed(r.t.Context(), a.query().Get("resourceVersion"))
	}
	if err != nil {
		r.t.Errorf("%s: %v", a.RequestURI, err)
	}
}

// send sends n requests of a kind, about a hundred a second.
func (r *recordedAgents) send(kind string, n int) {
	of := slices.DeleteFunc(slices.Clone(r.all), func(a asked) bool { return a.kind() != kind })
	var wg sync.WaitGroup
	for i := range n {
		source := r.source(r.fleet[i%len(r.fleet)], &of[i%len(of)], agentNodes+i%len(r.fleet))
		wg.Go(func() { r.ask(source, &of[i%len(of)]) })
		time.Sleep(10 * time.Millisecond)
	}
	wg.Wait()
}

// delays returns the times from the write of a change to the handlers of two informers at different
// servers, sorted.
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
		l := programList{corev1.SchemeGroupVersion.WithResource("services"), false}
		inf := informerOf(t, harness.Clientset(t, c), l, "")
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
		last := strconv.Itoa(changes - 1)
		return !slices.ContainsFunc(arrived, func(m map[string]time.Time) bool { return m[last].IsZero() })
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
