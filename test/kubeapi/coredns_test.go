package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

var (
	services       = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// named are Services of each kind and what belongs to them, with a number to be filled in.
const named = `{apiVersion: v1, kind: Service, metadata: {name: web-NUMBER}, spec: {clusterIP: 10.97.1.NUMBER, ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: db-NUMBER}, spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: db-NUMBER-v4, labels: {kubernetes.io/service-name: db-NUMBER}}, addressType: IPv4,
 endpoints: [{addresses: [10.98.NUMBER.1], hostname: one}, {addresses: [10.98.NUMBER.2], hostname: two}, {addresses: [10.98.NUMBER.3], conditions: {ready: false}}],
 ports: [{name: sql, port: 5432}]}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: db-NUMBER-v6, labels: {kubernetes.io/service-name: db-NUMBER}}, addressType: IPv6,
 endpoints: [{addresses: ["fd00::NUMBER"], hostname: three}], ports: [{name: sql, port: 5432}]}
---
{apiVersion: v1, kind: Service, metadata: {name: out-NUMBER}, spec: {type: ExternalName, externalName: www.example.org}}
---
{apiVersion: v1, kind: Pod, metadata: {name: pod-NUMBER}, spec: {containers: [{name: c, image: i}]}, status: {phase: Running, podIP: 10.98.NUMBER.9, podIPs: [{ip: 10.98.NUMBER.9}]}}`

// records are the questions about these Services, and the sorted answers.
var records = []struct {
	name, question, answers string
}{
	{"address", "web-NUMBER.NAMESPACE.svc.cluster.local. A", "A 10.97.1.NUMBER"},
	{"no IPv6 address", "web-NUMBER.NAMESPACE.svc.cluster.local. AAAA", ""},
	{"port", "_http._tcp.web-NUMBER.NAMESPACE.svc.cluster.local. SRV", "SRV 0 100 80 web-NUMBER.NAMESPACE.svc.cluster.local."},
	{"port of UDP", "_dns._udp.web-NUMBER.NAMESPACE.svc.cluster.local. SRV", "SRV 0 100 53 web-NUMBER.NAMESPACE.svc.cluster.local."},
	{"address to name", "NUMBER.1.97.10.in-addr.arpa. PTR", "PTR web-NUMBER.NAMESPACE.svc.cluster.local."},
	{"headless", "db-NUMBER.NAMESPACE.svc.cluster.local. A", "A 10.98.NUMBER.1, A 10.98.NUMBER.2"},
	{"headless, IPv6", "db-NUMBER.NAMESPACE.svc.cluster.local. AAAA", "AAAA fd00::NUMBER"},
	{"headless, port", "_sql._tcp.db-NUMBER.NAMESPACE.svc.cluster.local. SRV", "SRV 0 33 5432 one.db-NUMBER.NAMESPACE.svc.cluster.local., " +
		"SRV 0 33 5432 three.db-NUMBER.NAMESPACE.svc.cluster.local., SRV 0 33 5432 two.db-NUMBER.NAMESPACE.svc.cluster.local."},
	{"endpoint", "two.db-NUMBER.NAMESPACE.svc.cluster.local. A", "A 10.98.NUMBER.2"},
	{"address of an endpoint to name", "1.NUMBER.98.10.in-addr.arpa. PTR", "PTR one.db-NUMBER.NAMESPACE.svc.cluster.local."},
	{"outside", "out-NUMBER.NAMESPACE.svc.cluster.local. CNAME", "CNAME www.example.org."},
	{"pod", "10-98-NUMBER-9.NAMESPACE.pod.cluster.local. A", "A 10.98.NUMBER.9"},
	{"namespace", "NAMESPACE.svc.cluster.local. A", ""},
	{"no namespace", "no-NAMESPACE.svc.cluster.local. A", noName},
	{"service of the kube-apiserver", "kubernetes.default.svc.cluster.local. A", "A 10.96.0.1"},
}

// noName is the answer if there is no such name; the answer is empty if the name has other records.
const noName = "NXDOMAIN"

// TestCoreDNS resolves the Services of a cluster by a CoreDNS whose kube-apiserver is an agent: at its
// start, after a restart of the agent with changes, started while the agent has no connection, and
// when it has one again.
func TestCoreDNS(t *testing.T) {
	t.Parallel()
	s, n := newSite(t, shared.plane), newNames(t, shared.plane)
	n.create("coredns-a", 1)
	n.create("coredns-a", 2)
	d := startCoreDNS(t, s.cached, "verified")
	d.requireResolves("at the start", n)
	n.create("coredns-b", 3)
	d.requireResolves("after changes", n)
	before := s.served()
	require.GreaterOrEqual(t, before.lists, before.watches, "no list was seen, so that their absence proves nothing")
	before.lists = 0 // since the start of the next agent

	s.stop()
	n.create("coredns-c", 4)
	n.delete(1)
	s.start()
	d.requireResolves("after a restart of the agent", n)
	s.requireContinued("after a restart of the agent", before)

	s.link.Down()
	s.stop()
	s.start()
	s.requireContinued("offline", before)
	d.Kill()
	d = startCoreDNS(t, s.cached, "verified")
	d.requireResolves("started offline", n)
	before = s.served()

	n.create("coredns-d", 5)
	s.link.Up()
	d.requireResolves("after the link is back", n)
	s.requireContinued("after the link is back", before)

	status, err := s.agent.status.Status(t.Context())
	require.NoError(t, err)
	require.Len(t, status.Agent.Programs, 1, "of what it has spared the server")
	p := status.Agent.Programs[0]
	require.Equal(t, "coredns", strings.ToLower(p.Name))
	require.GreaterOrEqual(t, int(p.Watches), before.watches)
	require.Positive(t, p.Open)
	require.Zero(t, p.Forwarded)
}

// names are Services that a CoreDNS has to resolve, and Services that are gone.
type names struct {
	t   *testing.T
	on  *plane
	all []numbered
}

// numbered are the Services of a number, which is used once in a cluster.
type numbered struct {
	place  *place
	number int
	gone   bool
}

func newNames(t *testing.T, on *plane) *names {
	return &names{t: t, on: on}
}

// create creates the Services of a number, and their namespace.
func (n *names) create(namespace string, number int) {
	n.t.Helper()
	p := newPlace(n.t, n.on, namespace)
	p.apply(strings.ReplaceAll(named, "NUMBER", fmt.Sprint(number)))
	n.all = append(n.all, numbered{place: p, number: number})
}

// delete deletes the Services of a number.
func (n *names) delete(number int) {
	n.t.Helper()
	i := slices.IndexFunc(n.all, func(x numbered) bool { return x.number == number })
	n.all[i].gone = true
	for _, o := range []struct {
		of   schema.GroupVersionResource
		name string
	}{{services, "web-%d"}, {services, "db-%d"}, {services, "out-%d"}, {endpointSlices, "db-%d-v4"}, {endpointSlices, "db-%d-v6"}, {pods, "pod-%d"}} {
		n.all[i].place.remove(o.of, fmt.Sprintf(o.name, number))
	}
}

// coreDNS is a CoreDNS that answers for a cluster.
type coreDNS struct {
	*harness.Process
	t       *testing.T
	address string
	started time.Time
}

// startCoreDNS starts a CoreDNS, which ends with the test. It need not answer yet. The mode of pods is
// "verified" for those that there are, or "disabled".
func startCoreDNS(t *testing.T, kubeconfig, podsMode string) *coreDNS {
	t.Helper()
	program, err := controlplane.BuildCoreDNS(t.Context(), os.Stderr)
	require.NoError(t, err)
	d := &coreDNS{t: t, address: harness.FreeAddress(t), started: time.Now()}
	_, port, err := net.SplitHostPort(d.address)
	require.NoError(t, err)
	corefile := filepath.Join(t.TempDir(), "Corefile")
	require.NoError(t, os.WriteFile(corefile, fmt.Appendf(nil, `.:%s {
		bind 127.0.0.1
		errors
		kubernetes cluster.local in-addr.arpa ip6.arpa {
			kubeconfig %s
			pods %s
		}
	}`, port, kubeconfig, podsMode), 0o600))
	d.Process = harness.Start(t, exec.Command(program, "-conf", corefile))
	return d
}

// requireResolves waits until CoreDNS resolves the Services, and no longer those that are gone.
func (d *coreDNS) requireResolves(when string, n *names) {
	d.t.Helper()
	var wrong string
	began := time.Now()
	err := wait.PollUntilContextTimeout(d.t.Context(), pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		wrong = d.wrong(ctx, n)
		return wrong == "", nil
	})
	require.NoError(d.t, err, "%s: %s", when, wrong)
	d.t.Logf("%s: CoreDNS resolves all names after %s, %s after its start", when, time.Since(began), time.Since(d.started))
}

// wrong returns the answers that are wrong; empty if there is none.
func (d *coreDNS) wrong(ctx context.Context, n *names) string {
	var b strings.Builder
	for _, x := range n.all {
		fill := strings.NewReplacer("NUMBER", fmt.Sprint(x.number), "NAMESPACE", x.place.namespace)
		for _, r := range records {
			question, want := fill.Replace(r.question), fill.Replace(r.answers)
			if x.gone && strings.Contains(r.question, "NUMBER") {
				want = noName
			}
			got, err := d.ask(ctx, question)
			if err != nil {
				return fmt.Sprintf("%s: %v", question, err)
			}
			if got != want {
				fmt.Fprintf(&b, "\n%s: %s has the answers %q, not %q", r.name, question, got, want)
			}
		}
	}
	return b.String()
}

// ask returns the sorted answers to a question, without their names and times to live.
func (d *coreDNS) ask(ctx context.Context, question string) (string, error) {
	name, kind, _ := strings.Cut(question, " ")
	reply, _, err := new(dns.Client).ExchangeContext(ctx, new(dns.Msg).SetQuestion(name, dns.StringToType[kind]), d.address)
	if err != nil {
		return "", err
	}
	switch reply.Rcode {
	case dns.RcodeNameError:
		return noName, nil
	case dns.RcodeSuccess:
	default:
		return "", errors.New(dns.RcodeToString[reply.Rcode])
	}
	var answers []string
	for _, a := range reply.Answer {
		answers = append(answers, strings.Join(strings.Fields(a.String())[3:], " "))
	}
	slices.Sort(answers)
	return strings.Join(answers, ", "), nil
}
