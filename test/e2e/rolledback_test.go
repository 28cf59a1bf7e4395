package e2e

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestRestoredEtcdPastCheckpoint restores etcd from a backup and writes until it is past the agent's
// checkpoint, while the agent is stopped and while only its network is cut. The server then is of
// the same cluster, past the checkpoint, and accepts a watch from there. The agent must detect that
// the history is another one, list for the reason rv-ahead, and end with the server's objects. Of the
// LimitRanges all that the agent knows is the same in both histories: by itself that collection would resume,
// and miss the new one.
func TestRestoredEtcdPastCheckpoint(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 60}))
	p := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	x := newSite(t, settings{kubeconfig: p.Kubeconfig, resources: "- resource: configmaps\n- resource: limitranges"})
	ids := []string{"configmaps", "limitranges"}
	limits := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin)).Resource(schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}).Namespace(objects.Namespace(0))
	create := func(name string) (rv string) {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "LimitRange", "spec": map[string]any{"limits": []any{}}}}
		o.SetName(name)
		created, err := limits.Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		return created.GetResourceVersion()
	}
	a := x.start()
	for round, name := range []string{"stopped", "cut off"} {
		t.Log(name)
		a.requireServers(cp, "configmaps")
		saved := filepath.Join(t.TempDir(), "etcd")
		require.NoError(t, cp.SaveEtcd(t.Context(), saved))
		// The restore undoes these changes.
		undone := create("undone")
		require.NoError(t, limits.Delete(t.Context(), "undone", metav1.DeleteOptions{}))
		_, _, _ = changeConfigMaps(t, cp)
		_, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "configmaps", 5)
		require.NoError(t, err)
		a.requireServers(cp, "configmaps")
		for a.awaitCaughtUp(map[string]string{"limitranges": undone})["limitranges"].Objects > int64(round) { //nolint:revive // until it is deleted here
		}
		checkpoint := a.awaitCaughtUp(anywhere("configmaps"))["configmaps"].ResourceVersion
		if name == "stopped" {
			a.stop()
		} else {
			p.Down()
		}

		require.NoError(t, cp.RestoreEtcd(t.Context(), saved))
		create("of-the-new-history-" + strconv.Itoa(round))
		goPast(t, cp, checkpoint, "round-"+strconv.Itoa(round))
		if name == "stopped" {
			a = x.start()
		} else {
			p.Up()
		}
		listed := a.awaitListed("rv-ahead", ids...)
		a.requireServers(cp, "configmaps")
		require.Len(t, x.cached("limitranges"), round+1)
		for _, id := range ids {
			found := listed[id]
			require.Equal(t, round+1, a.relists(id)["rv-ahead"], id)
			require.Empty(t, found.Untrusted)
			if name == "stopped" {
				require.Contains(t, found.Verdict, "resume at RV ", "the file alone does not show it")
				require.EqualValues(t, 1, found.Lists, id)
			}
		}
	}
	a.stop()
	require.Contains(t, string(harness.ReadFile(x.t, x.log)), "on the server")
}

// goPast writes new configmaps until the server is past a checkpoint.
func goPast(t *testing.T, cp *controlplane.ControlPlane, checkpoint, prefix string) {
	t.Helper()
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	configmaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(objects.Namespace(0))
	for i := 0; ; i++ {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		o.SetName(prefix + "-" + strconv.Itoa(i))
		created, err := configmaps.Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		if compareRV(t)(created.GetResourceVersion(), checkpoint) > 0 && i > 20 {
			return
		}
	}
}
