package kubeapi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	prometheusclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
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

// TestPrometheus compares the targets that Prometheus' service discovery finds through an agent with
// those that it finds at the kube-apiserver: at its start, after a restart of the agent with changes,
// and started while the agent has no connection. It uses the package of Prometheus because Debian's
// program is built without it: promtool 2.42 refuses kubernetes_sd_configs as an unknown field.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t, shared.plane, "prometheus"), newSite(t, shared.plane)
	p.scrape("first")
	server, cached := discover(t, s.server, p), discover(t, s.cached, p)
	requireSameTargets(t, "at the start", server, cached, "first")
	s.stop()
	p.scrape("second")
	p.remove(pods, "first")
	s.start()
	requireSameTargets(t, "after a restart of the agent", server, cached, "second")

	s.link.cut()
	s.stop()
	s.start()
	requireSameTargets(t, "offline", server, discover(t, s.cached, p), "second")
	requireSameTargets(t, "offline, started before", server, cached, "second")
}

// scrape creates objects of which each role makes a target.
func (p *place) scrape(name string) {
	p.t.Helper()
	p.apply(strings.NewReplacer("NAMESPACE", p.namespace, "NAME", name).Replace(scraped))
}

var roles = []kubernetes.Role{kubernetes.RoleNode, kubernetes.RolePod, kubernetes.RoleService, kubernetes.RoleEndpointSlice}

// discovered are the targets that were discovered, with all labels, by role and source.
type discovered struct {
	place  *place
	mu     sync.Mutex
	groups map[string]targetgroup.Group
}

// discover discovers targets until the end of the test.
func discover(t *testing.T, kubeconfig string, p *place) *discovered {
	t.Helper()
	d := &discovered{place: p, groups: map[string]targetgroup.Group{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, role := range roles {
		config := &kubernetes.SDConfig{Role: role, KubeConfig: kubeconfig}
		registry := prometheusclient.NewRegistry()
		discoverer, err := config.NewDiscoverer(discovery.DiscovererOptions{
			Metrics: config.NewDiscovererMetrics(registry, discovery.NewRefreshMetrics(registry)),
		})
		require.NoError(t, err)
		updates := make(chan []*targetgroup.Group)
		running.Go(func() { discoverer.Run(ctx, updates) })
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case groups := <-updates:
					d.take(role, groups)
				}
			}
		})
	}
	return d
}

func (d *discovered) take(role kubernetes.Role, groups []*targetgroup.Group) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range groups {
		key := fmt.Sprintf("%s %s", role, g.Source)
		if len(g.Targets) == 0 { // the object is gone
			delete(d.groups, key)
			continue
		}
		d.groups[key] = *g
	}
}

// own returns the targets of the test's objects.
func (d *discovered) own() map[string]targetgroup.Group {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := map[string]targetgroup.Group{}
	for key, g := range d.groups {
		if g.Labels[model.LabelName("__meta_kubernetes_namespace")] == model.LabelValue(d.place.namespace) || strings.Contains(g.Source, "/"+d.place.namespace+"-") {
			own[key] = g
		}
	}
	return own
}

// requireSameTargets waits until both have the same targets, and one of the named object for each
// role.
func requireSameTargets(t *testing.T, when string, server, cached *discovered, name string) {
	t.Helper()
	var missing string
	err := wait.PollUntilContextTimeout(t.Context(), pollEvery, patience, true, func(context.Context) (bool, error) {
		want := server.own()
		missing = cmp.Diff(want, cached.own())
		for _, role := range roles {
			found := false
			for key := range want {
				found = found || strings.HasPrefix(key, string(role)+" ") && strings.HasSuffix(key, name)
			}
			if !found {
				missing += fmt.Sprintf("no %s of the kube-apiserver's named %s\n", role, name)
			}
		}
		return missing == "", nil
	})
	require.NoError(t, err, "%s: %s", when, missing)
}
