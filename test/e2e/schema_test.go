package e2e

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestSchemaChanged gives a custom resource another schema, with a default, while the agent is
// stopped and while only its network is cut. Every object is then served with one more field, under
// an unchanged resourceVersion. The agent must list for the reason schema-changed, and have the
// field.
func TestSchemaChanged(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{Widgets: 30, ConfigMaps: 5}))
	p := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	x := newSite(t, settings{kubeconfig: p.Kubeconfig, resources: "- resource: configmaps\n- resource: widgets.example.com"})
	a := x.start()
	a.requireServers(cp, "widgets.example.com", "configmaps")
	a.stop()

	before := onServer(t, cp, "widgets.example.com")
	addDefault(t, cp, "grade")
	require.Equal(t, before.newest(), onServer(t, cp, "widgets.example.com").newest(), "no object was written")
	a = x.start()
	a.awaitListed("schema-changed", "widgets.example.com")
	a.requireServers(cp, "widgets.example.com")
	require.Equal(t, 30, a.changes("widgets.example.com")["updated"])
	require.Equal(t, 1, a.relists("widgets.example.com")["schema-changed"])
	require.Zero(t, a.relists("configmaps").total())

	p.Down()
	addDefault(t, cp, "colour")
	p.Up()
	a.await("both lists", func(s *localapi.Status) string {
		if c := collections(s)["widgets.example.com"]; c.Lists < 2 || !c.CaughtUp {
			return "phase " + c.Phase
		}
		return ""
	})
	a.requireServers(cp, "widgets.example.com")
	require.Equal(t, 2, a.relists("widgets.example.com")["schema-changed"])
	a.stop()

	a = x.start()
	require.Zero(t, a.awaitCaughtUp(anywhere("widgets.example.com"))["widgets.example.com"].Lists, "an unchanged schema makes no list")
	a.stop()
}

// addDefault adds a field with a default to the spec of widgets, and waits until widgets are served
// with it.
func addDefault(t *testing.T, cp *controlplane.ControlPlane, field string) {
	t.Helper()
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	patch, err := json.Marshal([]map[string]any{{
		"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/" + field,
		"value": map[string]any{"type": "string", "default": "plain"},
	}})
	require.NoError(t, err)
	_, err = definitions.Patch(t.Context(), objects.WidgetResource.GroupResource().String(), types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	poll(t, "widgets are served with "+field, nil, func(context.Context) (bool, error) {
		for _, o := range onServer(t, cp, "widgets.example.com") {
			if v, _, _ := unstructured.NestedString(o, "spec", field); v != "plain" {
				return false, nil
			}
		}
		return true, nil
	})
}
