package clienttest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	served "github.com/snapcache/snapcache/kubeapi/internal/discovery"
	"github.com/snapcache/snapcache/store"
)

// till is a custom resource with the plural name of a built-in one.
func till(version string) served.Resource {
	return served.Resource{
		Info:        store.Info{Group: "acme.example.com", Version: version, Resource: "deployments", Kind: "Till"},
		Description: store.Description{Singular: "till", Custom: true},
	}
}

// TestDiscovery reads the discovery documents with client-go, in both forms.
func TestDiscovery(t *testing.T) {
	d := served.New([]served.Resource{
		{
			Info:        store.Info{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true},
			Description: store.Description{Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"}, Subresources: []string{"status", "resize"}},
		},
		{
			Info:        store.Info{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true},
			Description: store.Description{Singular: "deployment", ShortNames: []string{"deploy"}},
		},
		till("v1"), till("v1beta1"),
	})
	for _, tc := range []struct {
		name   string
		legacy bool
		paths  []string // that are asked for by the client, once each
	}{
		{"aggregated", false, []string{"/api", "/apis"}},
		{"legacy", true, []string{"/api", "/apis", "/api/v1", "/apis/apps/v1", "/apis/acme.example.com/v1", "/apis/acme.example.com/v1beta1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := make(chan string, 100)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- r.URL.Path
				if !d.Serve(w, r, false) {
					http.NotFound(w, r)
				}
			}))
			defer srv.Close()
			client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: srv.URL})
			require.NoError(t, err)
			client.UseLegacyDiscovery = tc.legacy

			groups, lists, err := client.ServerGroupsAndResources()
			require.NoError(t, err)
			close(asked)
			var paths []string
			for path := range asked {
				paths = append(paths, path)
			}
			require.ElementsMatch(t, tc.paths, paths)
			asked = make(chan string, 100)

			var names []string
			for _, g := range groups {
				names = append(names, g.Name+" "+g.PreferredVersion.GroupVersion)
			}
			require.Equal(t, []string{" v1", "apps apps/v1", "acme.example.com acme.example.com/v1"}, names)
			resources := map[string]metav1.Verbs{}
			for _, list := range lists {
				for _, r := range list.APIResources {
					resources[list.GroupVersion+" "+r.Name] = r.Verbs
				}
			}
			whole := metav1.Verbs{"get", "list", "watch"}
			require.Equal(t, map[string]metav1.Verbs{
				"v1 pods": whole, "v1 pods/resize": {"get"}, "v1 pods/status": {"get"}, "apps/v1 deployments": whole,
				"acme.example.com/v1 deployments": whole, "acme.example.com/v1beta1 deployments": whole,
			}, resources)

			cached := memory.NewMemCacheClient(client)
			deferred := restmapper.NewDeferredDiscoveryRESTMapper(cached)
			mapper := restmapper.NewShortcutExpander(deferred, cached, func(string) {})
			for _, m := range []struct {
				name string
				want schema.GroupVersionKind
			}{
				{"po", schema.GroupVersionKind{Version: "v1", Kind: "Pod"}},
				{"pod", schema.GroupVersionKind{Version: "v1", Kind: "Pod"}},
				{"deployments", schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}},
				{"deploy", schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}},
				{"till", schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Till"}},
			} {
				kind, err := mapper.KindFor(schema.GroupVersionResource{Resource: m.name})
				require.NoError(t, err, m.name)
				require.Equal(t, m.want, kind, m.name)
			}
			mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "acme.example.com", Kind: "Till"})
			require.NoError(t, err)
			require.Equal(t, "root", string(mapping.Scope.Name()))
			categories, ok := restmapper.NewDiscoveryCategoryExpander(client).Expand("all")
			require.True(t, ok)
			require.Equal(t, []schema.GroupResource{{Resource: "pods"}}, categories)
			require.NoError(t, discovery.ServerSupportsVersion(client, schema.GroupVersion{Group: "apps", Version: "v1"}))
		})
	}
}
