package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// lossyServer counts the complete lists of configmaps, and can answer them with an empty list.
type lossyServer struct {
	*gateway
	lists atomic.Int32
	lies  atomic.Int32 // how many more lists to answer with an empty one
}

func newLossyServer(t *testing.T, cp *controlplane.ControlPlane) *lossyServer {
	t.Helper()
	l := &lossyServer{gateway: newGateway(t, cp)}
	l.handle = func(w http.ResponseWriter, r *http.Request) bool {
		q := r.URL.Query()
		if r.URL.Path != "/api/v1/configmaps" || q.Has("watch") || q.Has("resourceVersion") || q.Has("continue") {
			return false
		}
		l.lists.Add(1)
		if l.lies.Add(-1) < 0 {
			return false
		}
		rev, err := cp.Revision(r.Context())
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, rev)
		return true
	}
	return l
}

// TestMassDeletion lets the checkpoint expire, and answers the following list with few objects or
// none. Deletes that a second list confirms are made; a single wrong list deletes nothing.
func TestMassDeletion(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	const all, gone = 200, 160
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: all}))
	l := newLossyServer(t, cp)
	x := newSite(t, settings{kubeconfig: l.Kubeconfig, resources: "- resource: configmaps"})
	a := x.start()
	a.requireServers(cp, "configmaps")
	stored := len(x.cached("configmaps"))
	require.EqualValues(t, 1, l.lists.Load(), "a first list has nothing to confirm")
	a.stop()

	t.Log("an empty answer, once")
	_, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "configmaps", 5)
	require.NoError(t, err)
	forget(t, cp)
	l.lists.Store(0)
	l.lies.Store(1)
	a = x.start()
	a.awaitListed("expired", "configmaps")
	a.requireServers(cp, "configmaps")
	require.Negative(t, l.lies.Load(), "no false answer was sent")
	require.EqualValues(t, 2, l.lists.Load())
	require.Equal(t, counters{"added": 0, "updated": 5, "deleted": 0}, a.changes("configmaps"))
	require.Equal(t, stored, a.counters("snapcache_deletions_held_back_total", "configmaps", "collection").total())
	require.Equal(t, 1, a.relists("configmaps").total())
	a.stop()

	t.Log("most are deleted")
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	configmaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	list, err := configmaps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	// Not the apiserver's own objects, which it would create again.
	seeded := slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool { return o.GetNamespace() == metav1.NamespaceSystem })
	for _, o := range seeded[:gone] {
		require.NoError(t, configmaps.Namespace(o.GetNamespace()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}))
	}
	_, err = objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "configmaps", 1)
	require.NoError(t, err)
	forget(t, cp)
	l.lists.Store(0)
	a = x.start()
	a.awaitListed("expired", "configmaps")
	a.requireServers(cp, "configmaps")
	require.EqualValues(t, 2, l.lists.Load(), "only a second list is believed")
	require.Equal(t, counters{"added": 0, "updated": 1, "deleted": gone}, a.changes("configmaps"))
	require.Equal(t, gone, a.counters("snapcache_deletions_held_back_total", "configmaps", "collection").total())
	require.Equal(t, 1, a.relists("configmaps").total())
	a.stop()
}
