package kubeapi

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// nodeName is the name of the node of the test, rebootTime what it has until it works again, and
// lookEvery the time between two looks at it.
const (
	nodeName   = "edge-1"
	rebootTime = 10 * time.Second

	lookEvery = 100 * time.Millisecond
)

var nodeKills = flag.Int("node.kills", 20, "how often TestNode kills the agent under the components of the node")

// node is a node with a kubelet, kube-proxy, CoreDNS and a controller.
type node struct {
	*workload
	*plane
	link  *harness.Network
	site  *site  // the agent that the components ask; nil if they ask the kube-apiserver
	base  string // kubeconfig with what they ask
	dir   string
	audit string // file of the kube-apiserver's audit log

	identity *controlplane.Client // of the kubelet
	files    map[string]string    // kubeconfigs, by component
	want     wanted
	truth    *truth
	recorded []*recorder // what the components get from the agent
	issued   map[string]bool

	kubelet    *hollowKubelet
	proxy      *kubeProxy // nil if it can't be tested on this machine
	dns        *coreDNS
	controller *controller

	results []result
}

// result is a row of the table that the test prints.
type result struct{ what, outcome string }

// TestNode runs a node whose components reach the cluster through an agent, or by themselves. The
// kube-apiserver is killed, everything on the node is killed and started again, and the kube-apiserver
// comes back as after hours, with 500 changes and without the history before them. Then the network
// fails, everything on the node is killed and started again, and the network comes back while the
// kube-apiserver has the history of another 500 changes. What the components do through the agent is
// what they do with a connection of their own, and they do it while the kube-apiserver is away, too.
// What they get from the agent is compared with the changes that etcd had. Prometheus is not among
// them, see TestPrometheus.
func TestNode(t *testing.T) {
	if !hasNetworks() {
		t.Log("without root and nft kube-proxy is left out")
	}
	var results [2][]result
	for i, name := range []string{"direct", "cached"} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, name == "cached")
			n.online()
			n.reboot()
			n.startServer()
			n.back("hours later, after 500 changes", 0)
			n.interrupt()
			n.back("the network back, after 500 changes", 1)
			if n.site != nil {
				n.kills(*nodeKills)
			}
			results[i] = n.results
		})
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	for i, r := range results[1] {
		direct := "-"
		if i < len(results[0]) {
			direct = results[0][i].outcome
		}
		fmt.Fprintf(table, "| %s\t| %s\t| %s\t|\n", r.what, direct, r.outcome)
	}
	require.NoError(t, table.Flush())
	t.Logf("a node with a direct connection, and through the agent:\n%s", &b)
}

// newNode starts a control plane with the objects of a node, and the agent if the node has one. The
// node's components are not started yet.
func newNode(t *testing.T, cached bool) *node {
	t.Helper()
	dir := t.TempDir()
	audit, args := audited(t, dir)
	on := newPlane(t, append(args, "--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-preferred-address-types=InternalIP")...)
	client := harness.Clientset(t, on.RESTConfig(controlplane.Admin))
	n := &node{workload: &workload{t: t, typed: client}, plane: on, dir: dir, audit: audit, files: map[string]string{}, issued: map[string]bool{}}
	var kept []string
	for _, resource := range recordedResources {
		kept = append(kept, resource)
	}
	n.truth = recordTruth(t, on.ControlPlane, kept...)
	n.begin()
	identity, own := newKubelet(t, on, nodeName)
	n.identity = identity
	if cached {
		secrets := &resource{}
		secrets.Version, secrets.Resource = "v1", "secrets"
		n.site = newSiteOf(t, on, []*resource{secrets}, func(s *site) {
			s.access, s.forward, s.tokens, s.node, s.identities = true, true, true, nodeName, []string{own}
		})
		n.link, n.base = n.site.link, n.site.cached
		n.awaitCaughtUp()
	} else {
		n.link = harness.NetworkOf(t, own)
		n.base = n.link.Kubeconfig
	}
	n.accounts()
	return n
}

// awaitCaughtUp waits until the agent has all resources.
func (n *node) awaitCaughtUp() {
	n.t.Helper()
	var status *localapi.Status
	require.Eventually(n.t, func() bool {
		var err error
		if status, err = n.site.agent.status.Status(n.t.Context()); err != nil {
			return false
		}
		for _, c := range status.Collections {
			if !c.CaughtUp {
				return false
			}
		}
		return len(status.Collections) > 15
	}, patience, pollEvery, "the agent is not caught up")
}

// accounts writes the kubeconfigs of the components, each with credentials of its own.
func (n *node) accounts() {
	n.t.Helper()
	read := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "list", "watch"}}
	}
	discovery, networking := "discovery.k8s.io", "networking.k8s.io"
	users := map[string]*clientcmdapi.AuthInfo{
		"kubelet":    {ClientCertificateData: n.identity.CertPEM, ClientKeyData: n.identity.KeyPEM},
		"kube-proxy": {Token: n.account("kube-proxy", read("", "services", "nodes"), read(discovery, "endpointslices"), read(networking, "servicecidrs"))},
		"coredns":    {Token: n.account("coredns", read("", "services", "namespaces"), read(discovery, "endpointslices"))},
		"controller": {Token: n.account("controller", read("", "services", "configmaps"), read(discovery, "endpointslices"))},
		"admin":      {Token: n.RESTConfig(controlplane.Admin).BearerToken},
	}
	if !hasNetworks() {
		delete(users, "kube-proxy")
	}
	for name, user := range users {
		config, err := clientcmd.LoadFromFile(n.base)
		require.NoError(n.t, err)
		for old := range config.AuthInfos {
			config.AuthInfos[old] = user
		}
		n.files[name] = filepath.Join(n.dir, name+".kubeconfig")
		require.NoError(n.t, clientcmd.WriteToFile(*config, n.files[name]))
		if n.site != nil && name != "admin" {
			r := newRecorder(n.t, name, n.files[name], n.dir)
			n.recorded, n.files[name] = append(n.recorded, r), r.kubeconfig
		}
	}
}

// start starts the components.
func (n *node) start() {
	n.t.Helper()
	n.accept()
	n.kubelet = startKubelet(n.t, n.files["kubelet"], filepath.Join(n.dir, "kubelet"))
	if hasNetworks() {
		n.proxy = startKubeProxy(n.t, n.files["kube-proxy"])
	}
	n.dns = startCoreDNS(n.t, n.files["coredns"], "disabled")
	n.controller = startController(n.t, n.files["controller"])
}

// accept lets the components reach the agent, which has started.
func (n *node) accept() {
	n.t.Helper()
	for _, r := range n.recorded {
		r.accept(n.t)
	}
}

// requireTrue requires that what the components got since their start is right.
func (n *node) requireTrue(killed bool) {
	n.t.Helper()
	complete := func() map[string][]change { return n.truth.complete(n.t, n.ControlPlane) }
	for _, r := range n.recorded {
		r.requireTrue(n.t, complete, killed)
	}
}

// restart kills everything on the node, and starts it again. It returns when that began.
func (n *node) restart() (began time.Time) {
	n.t.Helper()
	n.kill()
	n.requireTrue(true)
	n.requireKept()
	n.controller.requireForward(n.t)
	for _, r := range n.recorded {
		r.refuse()
		r.forget()
	}
	began = time.Now()
	if n.site != nil {
		n.site.start()
	}
	n.start()
	return began
}

// kill ends everything on the node without warning.
func (n *node) kill() {
	n.t.Helper()
	n.kubelet.Kill()
	if n.proxy != nil {
		n.proxy.Kill()
	}
	n.dns.Kill()
	n.controller.stop()
	if n.site != nil {
		n.site.kill()
	}
}

// online starts the components while the kube-apiserver can be reached.
func (n *node) online() {
	n.t.Helper()
	began := time.Now()
	n.start()
	n.want = n.now(n.t.Context())
	n.expect(true, began, patience,
		check{"the kubelet runs its pods", n.podsRun},
		check{"their status is at the kube-apiserver", n.reported},
		check{"the node is ready, and its lease renewed", n.beats(began)},
		check{"CoreDNS resolves every service", n.resolves},
		check{hasRules, n.rules},
		check{"the controller has its cache", n.cached},
		check{"a token for a pod", n.getsToken},
	)
	n.expect(true, time.Now(), patience,
		check{"kubectl logs", n.kubectl("this is main of keep-0", "logs", "keep-0")},
		check{"kubectl exec", n.kubectl("some words", "exec", "keep-0", "--", "some", "words")},
		check{"kubectl attach", n.attaches},
		check{"kubectl port-forward", n.forwardsPort},
	)
}

// reboot kills the kube-apiserver, and starts everything on the node again.
func (n *node) reboot() {
	n.t.Helper()
	n.want = n.now(n.t.Context())
	n.link.Down() // until the kube-apiserver is back with all changes
	require.NoError(n.t, n.KillAPIServer(n.t.Context()))
	began := n.restart()
	n.expect(n.site != nil, began, rebootTime,
		check{"without the kube-apiserver: the kubelet runs its pods", n.podsRun},
		check{"CoreDNS resolves every service", n.resolves},
		check{hasRules, n.rules},
		check{"the controller has its cache", n.cached},
		check{"a token for a pod", n.getsToken},
		check{"a write is refused at once", n.refusesWrites},
	)
}

// startServer starts the kube-apiserver as after hours: neither it nor etcd has what was before.
func (n *node) startServer() {
	n.t.Helper()
	require.NoError(n.t, n.CompactEtcd(n.t.Context()))
	require.NoError(n.t, n.StartAPIServer(n.t.Context()))
}

// interrupt makes the kube-apiserver unreachable while it runs, and starts everything on the node
// again.
func (n *node) interrupt() {
	n.t.Helper()
	n.link.Down()
	began := n.restart()
	const what = "without the network: the kubelet runs its pods"
	if n.site == nil {
		n.results = append(n.results, result{what, "not tried"}) // as in reboot
		return
	}
	n.expect(true, began, rebootTime, check{what, n.podsRun})
}

// back makes the kube-apiserver reachable, with the changes of a round.
func (n *node) back(when string, round int) {
	n.t.Helper()
	before := n.want
	n.change(round)
	n.want = n.now(n.t.Context())
	audited, err := os.Stat(n.audit)
	require.NoError(n.t, err)
	asked := map[string][]string{}
	for _, r := range n.recorded {
		asked[r.component] = r.lists()
	}
	began := time.Now()
	n.link.Up()
	n.want.pods = without(n.want.pods, ends(round)) // by the kubelet
	n.expect(true, began, patience,
		check{when + ": the kubelet runs its pods", n.podsRun},
		check{"their status is at the kube-apiserver", n.reported},
		check{"the node is ready, and its lease renewed", n.beats(began)},
		check{"CoreDNS resolves every service", n.resolves},
		check{"and none that is gone", n.forgets(before)},
		check{hasRules, n.rules},
		check{"the controller has its cache", n.cached},
	)
	n.expect(true, time.Now(), patience, check{"kubectl exec", n.kubectl("some words", "exec", begins(round), "--", "some", "words")})
	n.requireKept()
	outcome := "none was running"
	if n.site != nil {
		outcome = "0"
		_, stopped := n.kubelet.containers()
		require.NotZero(n.t, stopped[shop+"/"+ends(round)], "no container was stopped, so that it proves nothing")
	}
	n.results = append(n.results, result{"pods killed that should have lived", outcome})
	n.requireIssued()
	n.requireTrue(false)
	if n.site != nil {
		n.awaitCaughtUp() // also what no component waits for
	}
	for _, r := range n.recorded {
		require.Equal(n.t, asked[r.component], r.lists(), "%s listed again", r.component)
	}
	n.requireLists(audited.Size(), round == 0)
}

// check is a condition. The function returns what is wrong.
type check struct {
	what  string
	wrong func(context.Context) string
}

// hasRules is the condition of kube-proxy, which is left out where that is.
const hasRules = "kube-proxy has its rules"

// expect waits for conditions until a time since began has passed, and notes when each was met. All of
// them have to be met, or none.
func (n *node) expect(works bool, began time.Time, within time.Duration, checks ...check) {
	n.t.Helper()
	if n.proxy == nil {
		checks = slices.DeleteFunc(checks, func(c check) bool { return c.what == hasRules })
	}
	last := make([]string, len(checks))
	outcomes := make([]string, len(checks))
	var waiting sync.WaitGroup
	for i, c := range checks {
		waiting.Go(func() {
			ctx, cancel := context.WithDeadline(n.t.Context(), began.Add(within))
			defer cancel()
			last[i], outcomes[i] = "not tried in time", fmt.Sprintf("not in %s", within)
			err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
				if now := c.wrong(ctx); ctx.Err() == nil {
					last[i] = now
				}
				return last[i] == "", nil
			})
			if err == nil {
				outcomes[i] = fmt.Sprintf("after %.1f s", time.Since(began).Seconds())
			}
		})
	}
	waiting.Wait()
	for i, c := range checks {
		n.t.Logf("%s: %s %s", c.what, outcomes[i], last[i])
		n.results = append(n.results, result{c.what, outcomes[i]})
	}
	for i, c := range checks {
		require.Equal(n.t, works, last[i] == "", "%s: %s: %s", c.what, outcomes[i], last[i])
	}
}

// kills kills the agent at any moment again and again, while the components follow it and objects
// change. Now and then its link is cut, too, and the components start again, as they wait longer after
// each failure. None of them sees an object go back.
func (n *node) kills(rounds int) {
	n.t.Helper()
	random := rand.New(rand.NewPCG(uint64(rounds), 1)) //nolint:gosec // moments of a test
	for i := range rounds {
		n.touch(2 * i)
		if i%5 == 3 {
			n.link.Down()
		}
		longest := killMax
		if i%3 == 0 {
			longest *= 4 // client-go waits a second or more until it continues
		}
		time.Sleep(time.Duration(random.Int64N(int64(longest)))) // the moment is part of the test
		if i%10 == 9 {
			n.restart()
			continue
		}
		n.site.kill()
		n.touch(2*i + 1)
		if i%5 == 3 {
			n.link.Up()
		}
		n.site.start()
		n.accept()
	}
	pods := n.want.pods
	n.want = n.now(n.t.Context())
	require.Len(n.t, n.want.pods, len(pods))
	began := time.Now()
	n.expect(true, began, 2*patience, // an informer waits up to a minute after so many failures
		check{fmt.Sprintf("after %d kills of the agent: the kubelet runs its pods", rounds), n.podsRun},
		check{"their status is at the kube-apiserver", n.reported},
		check{"the lease is renewed", n.beats(began)},
		check{"CoreDNS resolves every service", n.resolves},
		check{hasRules, n.rules},
		check{"the controller has its cache", n.cached},
	)
	n.requireKept()
	n.requireTrue(false)
	n.controller.requireForward(n.t)
}
