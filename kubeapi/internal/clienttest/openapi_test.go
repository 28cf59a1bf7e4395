package clienttest

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/kubeapi/openapi"
)

// TestOpenAPI reads the documents of a mirror with client-go, as kubectl does to explain a resource.
func TestOpenAPI(t *testing.T) {
	server := map[string]string{
		"/openapi/v3": `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=A1"},"apis/batch/v1":{"serverRelativeURL":"/openapi/v3/apis/batch/v1?hash=A1"}}}`,
		"/openapi/v3/apis/apps/v1?hash=A1": `{"openapi":"3.0.0","info":{"title":"Kubernetes","version":"1.36"},"paths":{},
			"components":{"schemas":{"io.k8s.api.apps.v1.Deployment":{"description":"enables declarative updates","type":"object"}}}}`,
	}
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	m, err := openapi.Open(t.TempDir())
	require.NoError(t, err)
	get := func(_ context.Context, path string) (io.ReadCloser, error) {
		require.Contains(t, server, path)
		return io.NopCloser(strings.NewReader(server[path])), nil
	}
	require.NoError(t, m.Refresh(t.Context(), get, []schema.GroupVersion{apps}))
	srv := httptest.NewServer(m)
	defer srv.Close()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: srv.URL})
	require.NoError(t, err)

	root := openapi3.NewRoot(client.OpenAPIV3())
	versions, err := root.GroupVersions()
	require.NoError(t, err)
	require.Equal(t, []schema.GroupVersion{apps}, versions)
	spec, err := root.GVSpec(apps)
	require.NoError(t, err)
	require.Equal(t, "enables declarative updates", spec.Components.Schemas["io.k8s.api.apps.v1.Deployment"].Description)
	_, err = root.GVSpec(schema.GroupVersion{Group: "batch", Version: "v1"})
	require.Error(t, err)
}
