package e2e

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/upstream"
)

// newCluster returns the control plane as a user sees it.
func newCluster(t *testing.T, cp *controlplane.ControlPlane, user string) *upstream.Cluster {
	t.Helper()
	c, err := upstream.New(cp.RESTConfig(user))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestDescribe compares what is known of a resource with what the server has.
func TestDescribe(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	createTills(t, cp)
	pods := store.Description{
		Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"},
		Subresources: []string{"ephemeralcontainers", "resize", "status"},
	}
	tills := store.Description{
		Singular: "till", ShortNames: []string{"tl"}, Categories: []string{"all", "shop"}, Subresources: []string{"status"}, Custom: true,
	}
	full := tills
	full.Columns = []store.Column{
		{Name: "Size", Type: "integer", Format: "int32", Description: "drawers", JSONPath: ".spec.size"},
		{Name: "Note", Type: "string", Priority: 1, JSONPath: ".spec.note"},
	}
	full.SelectableFields = []string{".spec.size", ".spec.note"}
	old := tills
	old.Subresources = nil
	for _, tc := range []struct {
		name, user               string
		resource, version, group string
		want                     store.Description
	}{
		{"core", controlplane.Stranger, "pods", "", "", pods},
		{"cluster", controlplane.Stranger, "nodes", "", "", store.Description{Singular: "node", ShortNames: []string{"no"}, Subresources: []string{"status"}}},
		{"no subresource", controlplane.Stranger, "endpointslices", "", "discovery.k8s.io", store.Description{Singular: "endpointslice"}},
		{"scale is another object", controlplane.Stranger, "deployments", "", "apps", store.Description{
			Singular: "deployment", ShortNames: []string{"deploy"}, Categories: []string{"all"}, Subresources: []string{"status"},
		}},
		{"custom", controlplane.Reader, "tills", "v1", "shop.example.com", full},
		{"custom in another version", controlplane.Reader, "tills", "v1beta1", "shop.example.com", old},
		{"custom without rights on its definition", controlplane.Stranger, "tills", "v1", "shop.example.com", tills},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, cp, tc.user)
			r, err := c.Resolve(t.Context(), tc.resource, tc.version, tc.group)
			require.NoError(t, err)
			d, err := c.Definition(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, r, d.Resource)
			require.Equal(t, tc.want, d.Description)
		})
	}
}

// createTills defines a custom resource with columns and selectable fields in one of two versions, and
// waits until it is served.
func createTills(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	definition := &unstructured.Unstructured{}
	require.NoError(t, definition.UnmarshalJSON([]byte(`{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "tills.shop.example.com"},
		"spec": {
			"group": "shop.example.com", "scope": "Namespaced",
			"names": {"plural": "tills", "singular": "till", "kind": "Till", "shortNames": ["tl"], "categories": ["all", "shop"]},
			"versions": [
				{"name": "v1", "served": true, "storage": true,
				 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
				 "additionalPrinterColumns": [
					{"name": "Size", "type": "integer", "format": "int32", "description": "drawers", "jsonPath": ".spec.size"},
					{"name": "Note", "type": "string", "priority": 1, "jsonPath": ".spec.note"}],
				 "selectableFields": [{"jsonPath": ".spec.size"}, {"jsonPath": ".spec.note"}],
				 "schema": {"openAPIV3Schema": {"type": "object", "properties": {
					"spec": {"type": "object", "properties": {"size": {"type": "integer"}, "note": {"type": "string"}, "owner": {"type": "string"}}},
					"status": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}},
				{"name": "v1beta1", "served": true, "storage": false,
				 "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`)))
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	_, err := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(t.Context(), definition, metav1.CreateOptions{})
	require.NoError(t, err)
	c := newCluster(t, cp, controlplane.Admin)
	poll(t, "tills are served", nil, func(ctx context.Context) (bool, error) {
		for _, version := range []string{"v1", "v1beta1"} {
			if _, err := c.Resolve(ctx, "tills", version, "shop.example.com"); err != nil {
				return false, nil
			}
		}
		return true, nil
	})
}

// TestNewest checks that the newest resourceVersion covers every acknowledged change, in a scope with
// objects and in one without.
func TestNewest(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	admin := harness.Clientset(t, cp.RESTConfig(controlplane.Admin))
	c := newCluster(t, cp, controlplane.Reader)
	configmaps, err := c.Resolve(t.Context(), "configmaps", "", "")
	require.NoError(t, err)
	slices, err := c.Resolve(t.Context(), "endpointslices", "", "discovery.k8s.io")
	require.NoError(t, err)
	sources := []*upstream.Source{
		c.Source(upstream.SourceOptions{Resource: configmaps}),
		c.Source(upstream.SourceOptions{Resource: configmaps, Namespace: "default", LabelSelector: "a=b", FieldSelector: "metadata.name!=x"}),
		c.Source(upstream.SourceOptions{Resource: configmaps, Namespace: "none", Protobuf: true}),
		c.Source(upstream.SourceOptions{Resource: slices}),
	}
	for range 20 {
		written, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "newest-", Labels: map[string]string{"a": "b"}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		for _, s := range sources {
			rv, err := s.Newest(t.Context())
			require.NoError(t, err)
			order, ok := object.CompareRV(rv, written.ResourceVersion)
			require.True(t, ok)
			require.GreaterOrEqual(t, order, 0, "%s: %s is before %s", s, rv, written.ResourceVersion)
		}
	}
	secrets, err := c.Resolve(t.Context(), "secrets", "", "")
	require.NoError(t, err)
	_, err = c.Source(upstream.SourceOptions{Resource: secrets}).Newest(t.Context())
	require.Equal(t, upstream.Forbidden, upstream.Classify(err), "%v", err)
}

// TestServerDocuments reads the server's version and its OpenAPI documents.
func TestServerDocuments(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	c := newCluster(t, cp, controlplane.Stranger)
	version, err := c.ServerVersion(t.Context())
	require.NoError(t, err)
	want := harness.Kubectl(t, cp, "get", "--raw", "/version")
	require.JSONEq(t, string(want), string(version))

	get := func(path string, into any) {
		body, err := c.OpenAPI(t.Context(), path)
		require.NoError(t, err)
		raw, err := io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		require.NoError(t, json.Unmarshal(raw, into))
	}
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	get("/openapi/v3", &index)
	var document struct {
		OpenAPI string
		Paths   map[string]any
	}
	get(index.Paths["apis/apps/v1"].ServerRelativeURL, &document)
	require.Equal(t, "3.0.0", document.OpenAPI)
	require.Contains(t, document.Paths, "/apis/apps/v1/deployments")
	_, err = c.OpenAPI(t.Context(), "/openapi/v3/apis/none/v1")
	require.Equal(t, upstream.Gone, upstream.Classify(err), "%v", err)
}
