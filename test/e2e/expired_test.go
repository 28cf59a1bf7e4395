package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

var expiredIDs = []string{"configmaps", "services", "widgets.example.com"}

var expiredSeed = objects.SeedOptions{ConfigMaps: 200, Services: 40, Widgets: 40}

// The changes to configmaps while the agent is away.
const expiredUpdated, expiredDeleted, expiredAdded = 30, 7, 5

// TestExpiredWhileStopped lets the checkpoint expire while the agent is stopped: objects change,
// etcd is compacted and the apiserver restarted, so that a watch is answered with 410. The agent
// must list for the reason `expired`, and write exactly what changed.
func TestExpiredWhileStopped(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, expiredSeed))
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
- resource: services
  transform: {keepManagedFields: true}
- resource: widgets.v1.example.com
`})
	a := x.start()
	a.requireServers(cp, expiredIDs...)
	a.stop()

	changeConfigMaps(t, cp)
	forget(t, cp)
	a = x.start()
	found := a.awaitListed("expired", expiredIDs...)
	a.requireServers(cp, expiredIDs...)
	for _, id := range expiredIDs {
		require.EqualValues(t, 1, found[id].Lists, id)
		require.Equal(t, 1, a.relists(id)["expired"], id)
		require.Equal(t, 1, a.relists(id).total(), id)
	}
	require.Equal(t, counters{"added": expiredAdded, "updated": expiredUpdated, "deleted": expiredDeleted}, a.changes("configmaps"))
	require.Zero(t, a.changes("services").total(), "services did not change")
	require.Zero(t, a.changes("widgets.example.com").total(), "widgets did not change")
	a.stop()
}

// TestExpiredWhileRunning lets the checkpoint of a running agent expire: pods are written directly
// to etcd while the apiserver is down.
func TestExpiredWhileRunning(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	const pods, more = 60, 90
	require.NoError(t, objects.SeedPodsDirect(t.Context(), cp, pods))
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: pods"})
	a := x.start()
	a.requireServers(cp, "pods")
	require.Equal(t, pods, a.changes("pods")["added"])
	first := onServer(t, cp, "pods")

	require.NoError(t, cp.KillAPIServer(t.Context()))
	a.await("the outage is noticed", func(s *localapi.Status) string {
		if collections(s)["pods"].CaughtUp {
			return "still caught up"
		}
		return ""
	})
	requireSame(t, "pods while the server is away", first, x.cached("pods"))
	// The first of them are written again, which gives them new versions.
	require.NoError(t, objects.SeedPodsDirect(t.Context(), cp, more))
	require.NoError(t, cp.CompactEtcd(t.Context()))
	require.NoError(t, cp.StartAPIServer(t.Context()))

	found := a.awaitListed("expired", "pods")
	a.requireServers(cp, "pods")
	require.EqualValues(t, 2, found["pods"].Lists)
	require.Equal(t, counters{"added": more, "updated": pods, "deleted": 0}, a.changes("pods"), "with the first list")
	a.stop()
}

// changeConfigMaps updates, deletes and adds some configmaps.
func changeConfigMaps(t *testing.T, cp *controlplane.ControlPlane) (updated, deleted, added []string) {
	t.Helper()
	updated, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "configmaps", expiredUpdated)
	require.NoError(t, err)
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	configmaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	list, err := configmaps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	// From the end: Touch takes the first.
	for _, o := range list.Items[len(list.Items)-expiredDeleted:] {
		require.NoError(t, configmaps.Namespace(o.GetNamespace()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}))
		deleted = append(deleted, object.Key(o.GetNamespace(), o.GetName()))
	}
	for i := range expiredAdded {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		o.SetName("added-" + string(rune('a'+i)))
		o.SetNamespace(objects.Namespace(i))
		_, err := configmaps.Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		added = append(added, object.Key(o.GetNamespace(), o.GetName()))
	}
	return updated, deleted, added
}

// forget makes the server answer every watch from an earlier resourceVersion with 410.
func forget(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	require.NoError(t, cp.CompactEtcd(t.Context()))
	require.NoError(t, cp.RestartAPIServer(t.Context()))
}

// awaitListed waits until the newest list of each collection was made for this reason.
func (a *agent) awaitListed(reason string, ids ...string) map[string]localapi.Collection {
	a.t.Helper()
	s := a.await("listed: "+reason, func(s *localapi.Status) string {
		for _, id := range ids {
			if c := collections(s)[id]; c.ListReason != reason || !c.CaughtUp {
				return id + ": the newest list is " + c.ListReason + ", phase " + c.Phase
			}
		}
		return ""
	})
	return collections(s)
}
