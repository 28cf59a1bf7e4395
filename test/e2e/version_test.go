package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestServedVersionGone makes a definition serve v2 instead of v1. An agent whose configuration
// names no version switches to v2, with one list; one that names v1 keeps its objects and reports
// why.
func TestServedVersionGone(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{Widgets: 30}))
	const id = "widgets.example.com"
	start := func(resource string) *agent {
		a := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: " + resource}).start()
		a.requireServers(cp, id)
		return a
	}
	chosen, named := start("widgets.example.com"), start("widgets.v1.example.com")
	old := named.cached(id)
	serveOtherVersion(t, cp)

	chosen.await("the other version", func(s *localapi.Status) string {
		if c := collections(s)[id]; c.Version != "v2" || !c.CaughtUp {
			return "version " + c.Version + ", phase " + c.Phase + ": " + c.Problem
		}
		return ""
	})
	chosen.requireServers(cp, id)
	for key, o := range chosen.cached(id) {
		require.Equal(t, "example.com/v2", o["apiVersion"], key)
	}
	require.Equal(t, counters{"initial": 1, "schema-changed": 1}, nonZero(chosen.relists(id)))
	chosen.stop()

	named.await("reports why", func(s *localapi.Status) string {
		c := collections(s)[id]
		if c.CaughtUp || !strings.Contains(c.Problem, "404") {
			return "phase " + c.Phase + ": " + c.Problem
		}
		return ""
	})
	requireSame(t, id, old, named.cached(id))
	require.Equal(t, counters{"initial": 1}, nonZero(named.relists(id)))
	named.stop()
}

// serveOtherVersion makes widgets served as v2, and no longer as v1.
func serveOtherVersion(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	d, err := definitions.Get(t.Context(), objects.WidgetResource.GroupResource().String(), metav1.GetOptions{})
	require.NoError(t, err)
	versions := d.Object["spec"].(map[string]any)["versions"].([]any)
	v2 := d.DeepCopy().Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	v2["name"], v2["storage"] = "v2", false
	versions[0].(map[string]any)["served"] = false
	d.Object["spec"].(map[string]any)["versions"] = append(versions, v2)
	_, err = definitions.Update(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
}
