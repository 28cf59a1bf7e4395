package kubeapi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// single is a node with one program, a CoreDNS, which reads from the kube-apiserver or from an agent.
type single struct {
	t     *testing.T
	names *names
	link  *harness.Network
	dir   string           // of the agent; empty for none
	agent *harness.Process // nil for none
	dns   *coreDNS
	ended time.Duration // the CPU time of processes that have ended
}

// used is what a node used in one stage.
type used struct {
	bytes       int64 // on its link
	cpu         time.Duration
	own, agents int64 // memory of the program and of the agent at the end
}

// start starts the program, after the agent if the node has one and it does not run.
func (s *single) start() {
	s.t.Helper()
	kubeconfig := s.link.Kubeconfig
	if s.dir != "" {
		if s.agent == nil {
			var err error
			s.agent, err = startSnapcache(s.dir)
			require.NoError(s.t, err)
			s.t.Cleanup(s.agent.Kill)
		}
		kubeconfig = filepath.Join(s.dir, "cached.kubeconfig")
		require.Eventually(s.t, func() bool { // the agent makes the token at its first start
			config := filepath.Join(s.dir, "agent.yaml")
			out, err := exec.Command(harness.Snapcache, "kubeconfig", "--config", config).Output()
			return err == nil && os.WriteFile(kubeconfig, out, 0o600) == nil
		}, patience, pollEvery, "no kubeconfig")
	}
	s.dns = startCoreDNS(s.t, kubeconfig, "verified")
}

// processes returns the processes that run.
func (s *single) processes() (all []*harness.Process) {
	if s.dns != nil {
		all = append(all, s.dns.Process)
	}
	if s.agent != nil {
		all = append(all, s.agent)
	}
	return all
}

// stop stops the program, and the agent too if all is set.
func (s *single) stop(all bool) {
	s.t.Helper()
	s.ended += cpuOf(s.t, s.dns.Cmd.Process.Pid)
	s.dns.Kill()
	s.dns = nil
	if all && s.agent != nil {
		s.ended += cpuOf(s.t, s.agent.Cmd.Process.Pid)
		require.NoError(s.t, s.agent.Stop())
		s.agent = nil
	}
}

func (s *single) cpu() time.Duration {
	cpu := s.ended
	for _, p := range s.processes() {
		cpu += cpuOf(s.t, p.Cmd.Process.Pid)
	}
	return cpu
}

// stage measures fn, and [window] after the program resolves all names.
func (s *single) stage(name string, fn func()) used {
	s.t.Helper()
	cpu, bytes := s.cpu(), s.link.Received()
	fn()
	s.dns.requireResolves(name, s.names)
	time.Sleep(window)
	u := used{bytes: s.link.Received() - bytes, cpu: s.cpu() - cpu, own: harness.OwnMemory(s.dns.Cmd.Process.Pid)}
	if s.agent != nil {
		u.agents = harness.OwnMemory(s.agent.Cmd.Process.Pid)
	}
	return u
}

// stages are the stages of a node's life that are measured.
func (s *single) stages(changes func()) []used {
	s.t.Helper()
	return []used{
		s.stage("first start", s.start),
		s.stage("changes", changes),
		s.stage("restart of the program", func() { s.stop(false); s.start() }),
		s.stage("restart of the node", func() { s.stop(true); s.start() }),
	}
}

// TestSingleProgram measures a node with one program, alone and with an agent beside it: what both
// of them use of memory, of the CPU and of the node's link.
func TestSingleProgram(t *testing.T) {
	needsMeasuring(t)
	on := newPlane(t)
	require.NoError(t, objects.Seed(t.Context(), on.ControlPlane, objects.SeedOptions{
		Pods: 400, Services: 400, EndpointSlices: 400, Nodes: 20, Namespaces: 40,
	}))
	n := newNames(t, on)
	n.create("single", 1)
	const changes = 300
	admin := harness.Clientset(t, on.RESTConfig(controlplane.Admin)).DiscoveryV1()
	all, err := admin.EndpointSlices("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	change := func() {
		for i := range changes {
			o := &all.Items[i%len(all.Items)]
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/change":"%d"}}}`, time.Now().UnixNano())
			_, err := admin.EndpointSlices(o.Namespace).Patch(t.Context(), o.Name, types.MergePatchType, patch,
				metav1.PatchOptions{})
			require.NoError(t, err)
			time.Sleep(10 * time.Millisecond) // spread, as changes of a cluster are
		}
	}
	server := harness.Kubeconfig(t, on.ControlPlane, controlplane.Admin)
	alone := &single{t: t, names: n, link: harness.NetworkOf(t, server)}
	before := alone.stages(change)
	alone.stop(true)

	pair := &single{t: t, names: n, link: harness.NetworkOf(t, server), dir: t.TempDir()}
	config := fmt.Sprintf(`{apiVersion: snapcache.dev/v1alpha1, kind: AgentConfiguration, kubeconfig: %s,
metrics: {disabled: true}, store: {path: %[2]s/cache.db}, localAPI: {socket: %[2]s/local.sock},
kubernetesAPI: {address: %[3]s}, resources: [{resource: pods}, {resource: services}, {resource: endpointslices.discovery.k8s.io}, {resource: namespaces}]}`,
		pair.link.Kubeconfig, pair.dir, harness.FreeAddress(t))
	require.NoError(t, os.WriteFile(filepath.Join(pair.dir, "agent.yaml"), []byte(config), 0o600))
	harness.ShowLog(t, filepath.Join(pair.dir, "log"))
	with := pair.stages(change)

	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	names := []string{"first start", fmt.Sprintf("%d changes", changes), "restart of the program", "restart of the node"}
	for i, stage := range names {
		a, p := before[i], with[i]
		fmt.Fprintf(table, "| %s\t| %d KiB\t| %d KiB\t| %s\t| %s\t| %d KiB\t| %d + %d KiB\t|\n", stage,
			a.bytes>>10, p.bytes>>10, a.cpu, p.cpu, a.own>>10, p.own>>10, p.agents>>10)
	}
	require.NoError(t, table.Flush())
	t.Logf("bytes, CPU time and memory, of the program alone and with an agent:\n%s", &b)
	for _, i := range []int{2, 3} {
		require.Less(t, with[i].bytes, before[i].bytes/5, "bytes after a restart")
	}
}
