package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// scraped are objects of which each role makes a target. The slice does not refer to the Pod: its
// target would depend on which of the two Prometheus sees first.
const scraped = `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {app: scraped}}, spec: {nodeName: edge-1, containers: [{name: c, image: i, ports: [{containerPort: 80}]}]},
 status: {phase: Running, podIP: 10.3.0.1, podIPs: [{ip: 10.3.0.1}], conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: NAME, annotations: {prometheus.io/scrape: "true"}}, spec: {selector: {app: scraped}, ports: [{port: 80, name: http}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: NAMESPACE-NAME, labels: {zone: a}}, status: {addresses: [{type: InternalIP, address: 10.0.3.1}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: NAME, labels: {kubernetes.io/service-name: NAME}}, addressType: IPv4,
 endpoints: [{addresses: [10.3.0.1], nodeName: edge-1}], ports: [{name: http, port: 80}]}`

// TestPrometheus compares the targets that a Prometheus discovers through an agent with those of one at
// the kube-apiserver: at its start, after a restart of the agent with changes, started while the agent has
// no connection, and when it has one again. The program is Prometheus with its Kubernetes discovery alone,
// and not Debian's, which is built without it: promtool 2.42 refuses kubernetes_sd_configs.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t, shared.plane, "prometheus"), newSite(t, shared.plane)
	p.scrape("first")
	server, cached := startPrometheus(t, s.server, p), startPrometheus(t, s.cached, p)
	requireSameTargets(t, "at the start", server, cached, "first")
	before := s.served()
	require.GreaterOrEqual(t, before.lists, before.watches, "no list was seen, so that their absence proves nothing")
	before.lists = 0 // since the start of the next agent

	s.stop()
	p.scrape("second")
	p.remove(pods, "first")
	s.start()
	requireSameTargets(t, "after a restart of the agent", server, cached, "second")
	s.requireContinued("after a restart of the agent", before)

	s.link.Down()
	s.stop()
	s.start()
	s.requireContinued("offline", before)
	requireSameTargets(t, "offline, started before", server, cached, "second")
	late := startPrometheus(t, s.cached, p)
	requireSameTargets(t, "started offline", server, late, "second")
	before = s.served()

	p.scrape("third")
	s.link.Up()
	requireSameTargets(t, "after the link is back", server, cached, "third")
	requireSameTargets(t, "after the link is back, started offline", server, late, "third")
	s.requireContinued("after the link is back", before)
}

// scrape creates objects of which each role makes a target.
func (p *place) scrape(name string) {
	p.t.Helper()
	p.apply(strings.NewReplacer("NAMESPACE", p.namespace, "NAME", name).Replace(scraped))
}

var roles = []string{"node", "pod", "service", "endpointslice"}

// prometheus is a Prometheus that discovers targets of each role. It scrapes none of them: they have
// addresses of no machine.
type prometheus struct {
	place   *place
	address string
}

// startPrometheus starts a Prometheus, which ends with the test. It need not answer yet.
func startPrometheus(t *testing.T, kubeconfig string, p *place) *prometheus {
	t.Helper()
	program, err := controlplane.BuildPrometheus(t.Context(), os.Stderr)
	require.NoError(t, err)
	dir := t.TempDir()
	config := []byte("scrape_configs:\n")
	for _, role := range roles {
		config = fmt.Appendf(config, "- {job_name: %s, kubernetes_sd_configs: [{role: %s, kubeconfig_file: %s}], relabel_configs: [{action: drop}]}\n", role, role, kubeconfig)
	}
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, config, 0o600))
	x := &prometheus{place: p, address: harness.FreeAddress(t)}
	harness.Start(t, exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+x.address))
	return x
}

// targets returns the labels of the targets that were discovered of the test's objects.
func (x *prometheus) targets(ctx context.Context) (own []map[string]string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+x.address+"/api/v1/targets?state=dropped", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			DroppedTargets []struct {
				DiscoveredLabels map[string]string `json:"discoveredLabels"`
			} `json:"droppedTargets"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	for _, d := range answer.Data.DroppedTargets {
		labels := d.DiscoveredLabels
		if labels["__meta_kubernetes_namespace"] == x.place.namespace || strings.HasPrefix(labels["__meta_kubernetes_node_name"], x.place.namespace+"-") {
			own = append(own, labels)
		}
	}
	slices.SortFunc(own, func(a, b map[string]string) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return own, nil
}

// requireSameTargets waits until both have the same targets, and one of the named object for each
// role.
func requireSameTargets(t *testing.T, when string, server, cached *prometheus, name string) {
	t.Helper()
	var missing string
	err := wait.PollUntilContextTimeout(t.Context(), pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		want, err := server.targets(ctx)
		if err != nil {
			missing = err.Error()
			return false, nil
		}
		got, err := cached.targets(ctx)
		if err != nil {
			missing = err.Error()
			return false, nil
		}
		missing = cmp.Diff(want, got)
		for _, role := range roles {
			if !slices.ContainsFunc(want, func(labels map[string]string) bool {
				return labels["job"] == role && strings.HasSuffix(labels["__meta_kubernetes_"+role+"_name"], name)
			}) {
				missing += fmt.Sprintf("no %s of the kube-apiserver's named %s\n", role, name)
			}
		}
		return missing == "", nil
	})
	require.NoError(t, err, "%s: %s", when, missing)
}
