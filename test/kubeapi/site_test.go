package kubeapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// site is an agent of one test, with an address for clients and a link to the kube-apiserver that can
// be cut. Its files outlive restarts.
type site struct {
	*plane
	t       *testing.T
	dir     string
	address string // of the Kubernetes API
	metrics string // address
	link    *harness.Network
	direct  *harness.Network // to the server of the kubeconfig's context "direct", the fallback; nil for none
	seed    *harness.Network // to the server of the kubeconfig's context "seed", for first lists; nil for none
	agent   *agent           // nil while it is stopped

	resources []*resource

	access     bool     // the cluster's users are let in
	issued     bool     // the agent issues a certificate to the kubelet of its node
	forward    bool     // what is not cached is forwarded
	identities []string // kubeconfigs for callers with client certificates
	tokens     bool     // tokens are remembered, and the store is encrypted
	node       string   // whose resources of the profile are cached too; empty for none
	partly     string   // more configured resources, which await does not wait for
	api        string   // more lines of kubernetesAPI in the configuration
	only       string   // the one namespace of the resources; empty for all
	retention  string   // of the history; empty for the default

	// server and cached are paths of kubeconfigs for the kube-apiserver and the agent.
	server, cached string
}

// directContext and seedContext are the contexts and the clusters of the fallback and of the seed in a
// kubeconfig.
const (
	directContext = "direct"
	seedContext   = "seed"
)

// newSite starts an agent that caches all resources, and waits until it is caught up.
func newSite(t *testing.T, on *plane) *site {
	t.Helper()
	s := newSiteOf(t, on, cachedResources())
	require.NoError(t, s.agent.await(t.Context(), s.resources))
	return s
}

// newSiteOf starts an agent that caches some resources of a control plane, after changes to its site.
func newSiteOf(t *testing.T, on *plane, resources []*resource, change ...func(*site)) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "snapcache-site-") // short: it has sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	s := &site{
		plane: on, t: t, dir: dir, address: harness.FreeAddress(t), metrics: harness.FreeAddress(t),
		resources: resources, cached: filepath.Join(dir, "cached.kubeconfig"),
	}
	s.server = harness.Kubeconfig(t, on.ControlPlane, controlplane.Admin)
	s.link = harness.NetworkOf(t, s.server)
	for _, fn := range change {
		fn(s)
	}
	s.configure()
	harness.ShowLog(t, filepath.Join(dir, "log"))
	t.Cleanup(func() {
		if s.agent != nil {
			s.stop()
		}
	})
	s.start()
	var out []byte
	require.Eventually(t, func() bool { // with a signer it needs the cluster's CA, which the agent writes soon after its start
		out, err = exec.Command(harness.Snapcache, "kubeconfig", "--config", filepath.Join(dir, "agent.yaml")).Output()
		return err == nil
	}, patience, pollEvery, "no kubeconfig")
	require.NoError(t, os.WriteFile(s.cached, out, 0o600))
	s.agent.target, err = newServerTarget(restConfig(t, s.cached))
	require.NoError(t, err)
	return s
}

// configure writes the agent's configuration, and its kubeconfig, which leads through the link.
func (s *site) configure() {
	s.t.Helper()
	config, err := clientcmd.LoadFromFile(s.server)
	require.NoError(s.t, err)
	for name, c := range config.Clusters {
		c.Server = "https://" + s.link.Address
		switch {
		case name == directContext:
			c.Server = "https://" + s.direct.Address
		case name == seedContext && s.seed != nil:
			c.Server = "https://" + s.seed.Address
		}
	}
	require.NoError(s.t, clientcmd.WriteToFile(*config, filepath.Join(s.dir, "linked.kubeconfig")))
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: snapcache.dev/v1alpha1\nkind: AgentConfiguration\nresumeJitter: 0s\n")
	fmt.Fprintf(&b, "kubeconfig: %s/linked.kubeconfig\nmetrics: {address: %s}\n", s.dir, s.metrics)
	fmt.Fprintf(&b, "store: {path: %s/cache.db, commitInterval: 50ms}\nlocalAPI: {socket: %s/local.sock}\n", s.dir, s.dir)
	fmt.Fprintf(&b, "kubernetesAPI:\n  address: %s\n  openAPI: true\n  access: {enabled: %t, issueKubeletCertificate: %t}\n%s", s.address, s.access, s.issued, s.api)
	if s.forward {
		fmt.Fprintf(&b, "  forward:\n    enabled: true\n    identities:\n")
		for _, file := range s.identities {
			fmt.Fprintf(&b, "    - kubeconfig: %s\n", file)
		}
	}
	if s.tokens {
		key := filepath.Join(s.dir, "key")
		require.NoError(s.t, os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600))
		fmt.Fprintf(&b, "    rememberTokens: true\nencryption: {keyFile: %s}\n", key)
	}
	if s.retention != "" {
		fmt.Fprintf(&b, "history: {retention: %s}\n", s.retention)
	}
	if s.direct != nil {
		fmt.Fprintf(&b, "fallbackContext: %s\n", directContext)
	}
	if s.seed != nil {
		fmt.Fprintf(&b, "restore: {seed: %s}\n", seedContext)
	}
	fmt.Fprintf(&b, "secrets:\n  storeOnDisk: I understand that Secrets will be stored unencrypted on this node's disk\n")
	if s.node != "" {
		fmt.Fprintf(&b, "profile: node\nnodeName: %s\n", s.node)
	}
	fmt.Fprintf(&b, "resources:\n")
	for _, r := range s.resources {
		fmt.Fprintf(&b, "- {resource: %s, transform: {keepManagedFields: true}, namespaces: [%s]}\n", r.name(), s.only)
	}
	b.WriteString(s.partly)
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "agent.yaml"), []byte(b.String()), 0o600))
}

// start starts the agent, and waits until it accepts connections.
func (s *site) start() {
	s.t.Helper()
	p, err := startSnapcache(s.dir)
	require.NoError(s.t, err)
	s.agent = &agent{Process: p, status: localapi.NewClient(filepath.Join(s.dir, "local.sock"))}
	require.Eventually(s.t, func() bool {
		c, err := net.DialTimeout("tcp", s.address, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, patience, pollEvery, "the agent does not accept connections")
}

// stop ends the agent.
func (s *site) stop() {
	s.t.Helper()
	require.NoError(s.t, s.agent.Stop())
	s.agent = nil
}

// served is what an agent has served to its clients.
type served struct {
	watches int // that are open
	lists   int // since its start, with the watches that began with all objects
}

// served reads the metrics of the agent.
func (s *site) served() served {
	s.t.Helper()
	families := s.scrape()
	var all served
	for _, m := range families["snapcache_kubernetes_api_watches"].GetMetric() {
		all.watches += int(m.GetGauge().GetValue())
	}
	all.lists = all.watches
	for _, m := range families["snapcache_kubernetes_api_requests_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["verb"] == "list" || labels["verb"] == "watch" && labels["code"] == "200" {
			all.lists += int(m.GetCounter().GetValue())
		}
	}
	for _, m := range families["snapcache_kubernetes_api_resumes_total"].GetMetric() {
		all.lists -= int(m.GetCounter().GetValue())
	}
	return all
}

// scrape reads the metrics of the agent.
func (s *site) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	return harness.Metrics(s.t, s.metrics)
}

// fallback returns whether the agent uses the server of its fallback context, as its metric has it.
func (s *site) fallback() float64 {
	s.t.Helper()
	metrics := s.scrape()["snapcache_fallback"].GetMetric()
	require.Len(s.t, metrics, 1)
	return metrics[0].GetGauge().GetValue()
}

// requireContinued waits until clients have as many watches open as before, and requires that none
// of them has listed.
func (s *site) requireContinued(when string, before served) {
	s.t.Helper()
	var now served
	err := wait.PollUntilContextTimeout(s.t.Context(), pollEvery, patience, true, func(context.Context) (bool, error) {
		now = s.served() // a watch that has begun is not yet counted as resumed for a moment
		return now == before, nil
	})
	require.NoError(s.t, err, "%s: the agent has served %+v, not %+v", when, now, before)
}

// kill ends the agent without warning.
func (s *site) kill() {
	s.t.Helper()
	require.True(s.t, s.agent.Running(), "the agent has ended")
	s.agent.Kill()
	s.agent = nil
}

// restConfig returns the configuration of a client of the agent, or of the kube-apiserver. Requests
// are not limited.
func restConfig(t *testing.T, kubeconfig string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	return config
}
