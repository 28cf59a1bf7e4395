package discovery

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store"
)

var (
	pods = Resource{
		Info:        store.Info{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true},
		Description: store.Description{Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"}, Subresources: []string{"status", "resize"}},
	}
	deployments = Resource{
		Info:        store.Info{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true},
		Description: store.Description{Singular: "deployment", ShortNames: []string{"deploy"}},
	}
)

// till is a custom resource in a version.
func till(version string) Resource {
	return Resource{
		Info:        store.Info{Group: "acme.example.com", Version: version, Resource: "deployments", Kind: "Till"},
		Description: store.Description{Singular: "till", Custom: true},
	}
}

func TestServe(t *testing.T) {
	d := New([]Resource{pods, deployments})
	etag := get(t, d, "/apis", aggregatedType).Header().Get("ETag")
	require.Regexp(t, `^"[0-9A-F]{64}"$`, etag)
	const (
		plain = "application/json"
		beta  = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
		table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	)
	for _, tc := range []struct {
		name, path, accept string
		code               int
		mediaType          string
		kind               string
	}{
		{"no header", "/apis", "", 200, plain, "APIGroupList"},
		{"anything", "/apis", "*/*", 200, plain, "APIGroupList"},
		{"any application", "/apis", "application/*", 200, plain, "APIGroupList"},
		{"with parameters", "/apis", "application/json; charset=utf-8", 200, plain, "APIGroupList"},
		{"protobuf or JSON", "/api", "application/vnd.kubernetes.protobuf,application/json", 200, plain, "APIVersions"},
		{"aggregated", "/apis", aggregatedType, 200, aggregatedType, "APIGroupDiscoveryList"},
		{"aggregated core", "/api", aggregatedType, 200, aggregatedType, "APIGroupDiscoveryList"},
		{"aggregated as client-go asks", "/apis", aggregatedType + "," + plain, 200, aggregatedType, "APIGroupDiscoveryList"},
		{"aggregated as kubectl asks", "/apis", aggregatedType + "," + beta + "," + plain, 200, aggregatedType, "APIGroupDiscoveryList"},
		{"aggregated last", "/apis", plain + ";q=1, " + aggregatedType + ";q=0.1", 200, aggregatedType, "APIGroupDiscoveryList"},
		{"aggregated without peers", "/apis", aggregatedType + ";profile=nopeer", 200, aggregatedType, "APIGroupDiscoveryList"},
		{"beta or JSON", "/apis", beta + "," + plain, 200, plain, "APIGroupList"},
		{"slash", "/apis/apps/v1/", plain, 200, plain, "APIResourceList"},
		{"group", "/apis/apps", aggregatedType + "," + plain, 200, plain, "APIGroup"},
		{"beta", "/apis", beta, 406, plain, "Status"},
		{"aggregated group", "/apis/apps", aggregatedType, 406, plain, "Status"},
		{"aggregated version", "/api/v1", aggregatedType, 406, plain, "Status"},
		{"table", "/apis/apps/v1", table, 406, plain, "Status"},
		{"HTML", "/api", "text/html", 406, plain, "Status"},
		{"noise", "/api", ";;,/", 406, plain, "Status"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := get(t, d, tc.path, tc.accept)
			require.Equal(t, tc.code, w.Code, "%s", w.Body)
			require.Equal(t, tc.mediaType, w.Header().Get("Content-Type"))
			var body struct {
				metav1.TypeMeta
				Reason metav1.StatusReason
				Code   int
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
			require.Equal(t, tc.kind, body.Kind)
			if tc.mediaType == aggregatedType {
				require.Equal(t, "Accept", w.Header().Get("Vary"))
				require.Equal(t, "public", w.Header().Get("Cache-Control"))
				require.NotEmpty(t, w.Header().Get("ETag"))
			} else {
				require.Equal(t, "no-cache, private", w.Header().Get("Cache-Control"))
				require.Empty(t, w.Header().Get("ETag"))
			}
			if tc.code != 200 {
				require.Equal(t, metav1.StatusReasonNotAcceptable, body.Reason)
				require.Equal(t, tc.code, body.Code)
			}
		})
	}

	w := get(t, d, "/apis", aggregatedType, "If-None-Match", etag)
	require.Equal(t, http.StatusNotModified, w.Code)
	require.Empty(t, w.Body.Bytes())
	require.Equal(t, etag, w.Header().Get("ETag"))
	require.Equal(t, "Accept", w.Header().Get("Vary"))
	require.Equal(t, http.StatusOK, get(t, d, "/api", aggregatedType, "If-None-Match", etag).Code, "another document")
	require.Equal(t, http.StatusOK, get(t, d, "/apis", "application/json", "If-None-Match", etag).Code, "another form")
	require.NotEqual(t, etag, get(t, New([]Resource{pods}), "/apis", aggregatedType).Header().Get("ETag"), "other resources")
	require.Equal(t, etag, get(t, New([]Resource{deployments, pods}), "/apis", aggregatedType).Header().Get("ETag"), "another order")
}

func TestServe_Unknown(t *testing.T) {
	d := New([]Resource{pods, deployments})
	for _, path := range []string{"", "/", "/api/v2", "/apis/apps/v2", "/apis/batch", "/apis/batch/v1", "/apis//v1", "/apis/apps/v1/deployments", "/api/v1/pods", "/version"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = path
		require.False(t, d.Serve(w, r, false), path)
		require.Empty(t, w.Header(), path)
		require.Zero(t, w.Body.Len(), path)
	}
}

// A server without resources has valid documents, too.
func TestNew_Empty(t *testing.T) {
	d := New(nil)
	for _, tc := range []struct{ path, accept, want string }{
		{"/api", "", `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"127.0.0.1:23799"}]}`},
		{"/api/v1", "", `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}`},
		{"/apis", "", `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`},
		{"/api", aggregatedType, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","freshness":"Current"}]}]}`},
		{"/apis", aggregatedType, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}`},
	} {
		require.Equal(t, tc.want+"\n", get(t, d, tc.path, tc.accept).Body.String(), tc.path)
	}
}

// A resource of several collections is listed once, with the description that one of them has.
func TestNew_SameResource(t *testing.T) {
	one, two, undescribed := pods, pods, pods
	one.ID, one.Namespace = "pods@a", "a"
	two.ID, two.Namespace = "pods@b", "b"
	undescribed.Description = store.Description{}
	want := get(t, New([]Resource{pods}), "/api/v1", "").Body.String()
	for _, order := range [][]Resource{{one, two}, {undescribed, one}, {one, undescribed}} {
		require.Equal(t, want, get(t, New(order), "/api/v1", "").Body.String())
	}
}

// Custom resources come after all others, and stable versions first.
func TestNew_Order(t *testing.T) {
	d := New([]Resource{till("v1beta2"), till("v10"), till("v2"), till("v1beta10"), till("odd"), deployments, till("v3alpha1")})
	var list metav1.APIGroupList
	require.NoError(t, json.Unmarshal(get(t, d, "/apis", "").Body.Bytes(), &list))
	require.Len(t, list.Groups, 2)
	require.Equal(t, "apps", list.Groups[0].Name)
	var versions []string
	for _, v := range list.Groups[1].Versions {
		versions = append(versions, v.Version)
	}
	require.Equal(t, []string{"v10", "v2", "v1beta10", "v1beta2", "v3alpha1", "odd"}, versions)
	require.Equal(t, metav1.GroupVersionForDiscovery{GroupVersion: "acme.example.com/v10", Version: "v10"}, list.Groups[1].PreferredVersion)
}

// TestStale: a version of which nothing is known is listed as stale, and one of which something is known is
// not, because clients leave out the resources of a stale one.
func TestStale(t *testing.T) {
	d := New([]Resource{pods, deployments}, schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "apps", Version: "v1"},
		schema.GroupVersion{Group: "apps", Version: "v2"}, schema.GroupVersion{Group: "example.com", Version: "v1"})
	freshness := func(path string) map[string]apidiscovery.DiscoveryFreshness {
		var list apidiscovery.APIGroupDiscoveryList
		require.NoError(t, json.Unmarshal(get(t, d, path, aggregatedType).Body.Bytes(), &list))
		found := map[string]apidiscovery.DiscoveryFreshness{}
		for _, g := range list.Items {
			for _, v := range g.Versions {
				found[g.Name+"/"+v.Version] = v.Freshness
			}
		}
		return found
	}
	current, stale := apidiscovery.DiscoveryFreshnessCurrent, apidiscovery.DiscoveryFreshnessStale
	require.Equal(t, map[string]apidiscovery.DiscoveryFreshness{"/v1": current}, freshness("/api"))
	require.Equal(t, map[string]apidiscovery.DiscoveryFreshness{"apps/v1": current, "apps/v2": stale, "example.com/v1": stale}, freshness("/apis"))
	require.Equal(t, http.StatusOK, get(t, d, "/apis/example.com", "").Code)
	require.True(t, d.IsStale(schema.GroupVersion{Group: "example.com", Version: "v1"}))
	require.False(t, d.Empty())
	require.True(t, New(nil).Empty())
}
