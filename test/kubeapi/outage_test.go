package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestOutage runs all clients at once and kills the kube-apiserver, of a control plane of its own,
// under them. While it is away the agent starts again, and a second set of clients begins. When it is
// back, its watch cache is empty, so that the agent lists; the clients do not.
func TestOutage(t *testing.T) {
	t.Parallel()
	on := newPlane(t)
	s, p, n := newSite(t, on), newPlace(t, on, "outage"), newNames(t, on)
	change := func(name string, number int) {
		p.change()
		p.scrape(name)
		n.create("outage-"+name, number)
	}
	change("first", 1)

	everything := func(of schema.GroupVersionResource) []*unstructured.Unstructured { return on.read(t, of) }
	direct := []*run{
		{name: "client-go", views: directViews(t, restConfig(t, s.cached)), requests: &requests{}},
		{name: "kubectl", views: s.kubectlViews(), requests: &requests{}},
	}
	server, running := startPrometheus(t, s.server, p), startAll(t, s, p)
	running.requireInStep("at the start", everything, server, n, "first")
	change("second", 2)
	running.requireInStep("after changes", everything, server, n, "second")
	requireInStep(t, "after changes", direct, everything)

	kept := map[schema.GroupVersionResource][]*unstructured.Unstructured{}
	for _, of := range []schema.GroupVersionResource{configMaps, pods, nodes, deployments, widgets} {
		kept[of] = on.read(t, of)
	}
	offline := func(of schema.GroupVersionResource) []*unstructured.Unstructured { return kept[of] }
	before := s.served()
	require.NoError(t, on.KillAPIServer(t.Context()))
	requireInStep(t, "without the kube-apiserver", direct, offline)
	s.stop()
	forget(running.programs)
	s.start()
	s.requireContinued("after a restart without the kube-apiserver", served{watches: before.watches})
	running.requireInStep("after a restart without the kube-apiserver", offline, server, n, "second")
	requireInStep(t, "after a restart without the kube-apiserver", direct, offline)
	late := startAll(t, s, p)
	late.requireInStep("started without the kube-apiserver", offline, server, n, "second")

	forget(late.programs)
	before = s.served()
	require.NoError(t, on.StartAPIServer(t.Context()))
	change("third", 3)
	n.delete(1)
	for _, a := range []*all{running, late} {
		a.requireInStep("with the kube-apiserver again", everything, server, n, "third")
		requireNoLists(t, "with the kube-apiserver again", a.programs)
	}
	s.requireContinued("with the kube-apiserver again", before)
	requireInStep(t, "with the kube-apiserver again", direct, everything)
}

// all are clients of each kind that follow an agent.
type all struct {
	t          *testing.T
	programs   []*run
	prometheus *prometheus
	coreDNS    *coreDNS
}

func startAll(t *testing.T, s *site, p *place) *all {
	t.Helper()
	return &all{t: t, coreDNS: startCoreDNS(t, s.cached, "verified"), prometheus: startPrometheus(t, s.cached, p), programs: startClients(t, s)}
}

// requireInStep waits until the clients have the objects that truth returns, the targets that
// Prometheus discovers at the kube-apiserver, one of them of the named objects, and the Services.
func (a *all) requireInStep(when string, truth func(schema.GroupVersionResource) []*unstructured.Unstructured, server *prometheus, n *names, name string) {
	a.t.Helper()
	requireInStep(a.t, when, a.programs, truth)
	requireSameTargets(a.t, when, server, a.prometheus, name)
	a.coreDNS.requireResolves(when, n)
}

// kubectlViews reads with kubectl.
func (s *site) kubectlViews() (views []view) {
	for _, of := range []schema.GroupVersionResource{configMaps, pods, nodes, deployments, widgets} {
		views = append(views, view{name: "get", of: of, form: asItIs, read: func(ctx context.Context) (objects []runtime.Object, err error) {
			out := s.startKubectl(ctx, s.cached, "get -A -o json --show-managed-fields "+of.GroupResource().String()).wait()
			if out.code != 0 {
				return nil, errors.New(out.stderr)
			}
			var list unstructured.UnstructuredList
			if err := json.Unmarshal([]byte(out.stdout), &list); err != nil {
				return nil, err
			}
			for i := range list.Items {
				objects = append(objects, &list.Items[i])
			}
			return objects, nil
		}})
	}
	return views
}
