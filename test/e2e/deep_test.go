package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// deepest is how many levels a field of a custom resource may have for a kube-apiserver that also
// returns it in a list: its managedFields, which have seven levels above theirs, end at 10,000. One
// level more is stored, and from then on the server answers every list of the resource with 500.
const deepest = 9_993

// TestDeepObjects caches custom resources as deep as a kube-apiserver takes them, from a list and from
// a watch. JSON decoders that stop at 10,000 levels, as Go's do, can read neither the list nor the
// event, because these add levels.
func TestDeepObjects(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{Widgets: 2}))
	cfg := cp.RESTConfig(controlplane.Admin)
	client := harness.Dynamic(t, cfg)
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	patch, err := json.Marshal([]map[string]any{{
		"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/tree",
		"value": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}})
	require.NoError(t, err)
	_, err = definitions.Patch(t.Context(), objects.WidgetResource.GroupResource().String(), types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)

	admin, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	tree := strings.Repeat(`{"a":`, deepest) + "0" + strings.Repeat("}", deepest)
	create := func(name string) (rv string, stored bool) {
		t.Helper()
		body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"model":"m","tree":%s}}`, name, tree)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cfg.Host+"/apis/example.com/v1/namespaces/default/widgets", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := admin.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, resp.StatusCode, "%.300s", answer)
		var o metav1.PartialObjectMetadata
		require.NoError(t, json.Unmarshal(answer, &o))
		return o.ResourceVersion, strings.Contains(string(answer), tree)
	}
	// The server drops fields that its new schema does not have until it uses that.
	n := 0
	poll(t, "the server uses the new schema", nil, func(context.Context) (bool, error) {
		n++
		_, stored := create(fmt.Sprintf("listed-%d", n))
		return stored, nil
	})

	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: widgets.example.com"})
	a := x.start()
	require.EqualValues(t, 2+n, a.awaitCaughtUp(anywhere("widgets.example.com"))["widgets.example.com"].Objects)
	rv, _ := create("watched")
	a.awaitCaughtUp(map[string]string{"widgets.example.com": rv})
	require.Equal(t, 2, strings.Count(string(x.must("dump", "widgets.example.com", "-o", "ndjson")), tree))
	a.stop()
}
