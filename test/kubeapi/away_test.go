package kubeapi

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestInformersAway cuts clients from an agent until the kube-apiserver has forgotten the resourceVersions
// that they have, and the agent has started again. They continue without a list.
func TestInformersAway(t *testing.T) {
	t.Parallel()
	on := newPlane(t)
	s, p := newSite(t, on), newPlace(t, on, "away")
	p.change()
	wire := harness.NewNetwork(t, s.address)
	running := startClientsAt(t, s, wire.Address)
	everything := func(of schema.GroupVersionResource) []*unstructured.Unstructured { return on.read(t, of) }
	requireInStep(t, "at the start", running, everything)
	p.change() // after less than a second without an event client-go lists again
	requireInStep(t, "before the cut", running, everything)
	objects := on.client.Resource(configMaps)
	list, err := objects.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	wire.Down()
	forget(running)
	p.change()
	direct := []*run{{name: "client-go", views: directViews(t, restConfig(t, s.cached)), requests: &requests{}}}
	requireInStep(t, "the agent, while the clients are away", direct, everything)
	require.NoError(t, on.KillAPIServer(t.Context()))
	require.NoError(t, on.CompactEtcd(t.Context()))
	require.NoError(t, on.StartAPIServer(t.Context()))
	requireGone(t, on, list.GetResourceVersion())
	s.stop()
	s.start()
	p.change()
	requireInStep(t, "the agent, after a restart", direct, everything)
	wire.Up()
	requireInStep(t, "back", running, everything)
	requireNoLists(t, "back", running)
	p.change()
	requireInStep(t, "after changes", running, everything)
	requireNoLists(t, "after changes", running)
}

// requireGone requires that the kube-apiserver answers a watch of ConfigMaps from a resourceVersion with 410.
func requireGone(t *testing.T, on *plane, rv string) {
	t.Helper()
	w, err := on.client.Resource(configMaps).Watch(t.Context(), metav1.ListOptions{ResourceVersion: rv, AllowWatchBookmarks: true})
	require.NoError(t, err)
	defer w.Stop()
	e := <-w.ResultChan()
	require.Equal(t, watch.Error, e.Type)
	require.True(t, apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) || apierrors.IsGone(apierrors.FromObject(e.Object)), "%v", e.Object)
}
