package upstream

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// discoveryDocs are the documents of a small server, by path.
var discoveryDocs = map[string]string{
	"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[
		{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","shortNames":["po"],"verbs":["create","get","list","watch"]},
		{"name":"pods/status","singularName":"","namespaced":true,"kind":"Pod","verbs":["get","patch","update"]},
		{"name":"nodes","singularName":"node","namespaced":false,"kind":"Node","shortNames":["no"],"verbs":["get","list","watch"]},
		{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]},
		{"name":"listonly","singularName":"","namespaced":true,"kind":"ListOnly","verbs":["list"]},
		{"name":"events","singularName":"event","namespaced":true,"kind":"Event","shortNames":["ev"],"verbs":["list","watch"]}]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[
		{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}},
		{"name":"broken.example.com","versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}},
		{"name":"shop.example.com","versions":[{"version":"v2"},{"version":"v1"}],"preferredVersion":{"version":"v2"}}]}`,
	"/apis/apps": `{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}`,
	"/apis/apps/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[
		{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","shortNames":["deploy"],"verbs":["list","watch"]}]}`,
	"/apis/shop.example.com": `{"kind":"APIGroup","name":"shop.example.com","versions":[{"version":"v2"},{"version":"v1"}],"preferredVersion":{"version":"v2"}}`,
	"/apis/shop.example.com/v2": `{"kind":"APIResourceList","resources":[
		{"name":"tills","singularName":"till","namespaced":true,"kind":"Till","shortNames":["tl"],"verbs":["list","watch"]}]}`,
	"/apis/shop.example.com/v1": `{"kind":"APIResourceList","resources":[
		{"name":"tills","singularName":"till","namespaced":true,"kind":"Till","verbs":["list","watch"]},
		{"name":"scanners","singularName":"scanner","namespaced":true,"kind":"Scanner","verbs":["list","watch"]}]}`,
}

func discoveryServer(requests *int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		*requests++
		if r.URL.Path == "/apis/broken.example.com" || r.URL.Path == "/apis/broken.example.com/v1" {
			reply(w, 503, "the aggregated server is away")
		} else if doc, ok := discoveryDocs[r.URL.Path]; ok {
			reply(w, 200, doc)
		} else {
			http.NotFound(w, r)
		}
	}
}

func TestResolve(t *testing.T) {
	gvr := func(g, v, r string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: g, Version: v, Resource: r}
	}
	for _, tc := range []struct {
		name                     string
		resource, version, group string
		want                     Resource
		err                      string
		kind                     ErrorClass
	}{
		{"core", "pods", "", "", Resource{gvr("", "v1", "pods"), "Pod", true}, "", ""},
		{"core with version", "nodes", "v1", "", Resource{gvr("", "v1", "nodes"), "Node", false}, "", ""},
		{"preferred version", "tills", "", "shop.example.com", Resource{gvr("shop.example.com", "v2", "tills"), "Till", true}, "", ""},
		{"named version", "tills", "v1", "shop.example.com", Resource{gvr("shop.example.com", "v1", "tills"), "Till", true}, "", ""},
		{"only in an older", "scanners", "", "shop.example.com", Resource{gvr("shop.example.com", "v1", "scanners"), "Scanner", true}, "", ""},

		{"other group", "deployments", "", "", Resource{}, `the server has no resource "deployments" in the core group: did you mean deployments.apps?`, Gone},
		{"singular", "pod", "", "", Resource{}, `no resource "pod" in the core group: did you mean pods?`, Gone},
		{"short name", "deploy", "", "apps", Resource{}, `no resource "deploy" in group apps: did you mean deployments.apps?`, Gone},
		{"kind", "Node", "", "", Resource{}, "did you mean nodes?", Gone},
		{"capitals", "Pods", "", "", Resource{}, "did you mean pods?", Gone},
		{"no such group", "pods", "", "none.example.com", Resource{}, `no resource "pods" in group none.example.com: did you mean pods?`, Gone},
		{"no such version", "tills", "v9", "shop.example.com", Resource{}, `no resource "tills" in version v9 of group shop.example.com: did you mean tills.shop.example.com or tills.v1.shop.example.com?`, Gone},
		{"version of core", "pods", "v2", "", Resource{}, `in version v2 of the core group: did you mean pods?`, Gone},
		{"older, elsewhere", "scanner", "", "", Resource{}, `the server has no resource "scanner" in the core group`, Gone},
		{"nothing like it", "unicorns", "", "", Resource{}, `the server has no resource "unicorns" in the core group`, Gone},
		{"subresource", "pods/status", "", "", Resource{}, `no resource "pods/status"`, Gone},
		{"no list", "bindings", "", "", Resource{}, `resource "bindings" in v1 can't be cached: the server offers no list of it`, Gone},
		{"no watch", "listonly", "", "", Resource{}, "the server offers no watch of it", Gone},
		{"server failure", "x", "", "broken.example.com", Resource{}, "503", Server},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var requests int
			c := serve(t, discoveryServer(&requests))
			got, err := c.Resolve(context.Background(), tc.resource, tc.version, tc.group)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.kind, Classify(err), "%v", err)
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			if tc.kind == Server {
				require.ErrorContains(t, err, "look up x.broken.example.com")
				return
			}
			require.ErrorContains(t, err, tc.err)
			require.ErrorAs(t, err, new(*NoResourceError))
		})
	}
}

// A missing resource is looked up for hours. The search through all groups runs once.
func TestResolveSuggestsOnce(t *testing.T) {
	var requests int
	c := serve(t, discoveryServer(&requests))
	_, first := c.Resolve(context.Background(), "deployments", "", "")
	once := requests
	_, second := c.Resolve(context.Background(), "deployments", "", "")
	require.Equal(t, first, second)
	require.Equal(t, once+1, requests)
}

// No answer of a login page proves that the cluster lacks a resource.
func TestResolveNotKubernetes(t *testing.T) {
	for _, body := range []string{"<html>log in</html>", "{}", "null", `{"resources":[]}`, `{"status":"log in"}`, "[]"} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
		for _, group := range []string{"", "apps"} {
			_, err := c.Resolve(context.Background(), "pods", "", group)
			require.ErrorContains(t, err, "login page", body)
			require.NotErrorAs(t, err, new(*NoResourceError), body)
		}
	}
}
