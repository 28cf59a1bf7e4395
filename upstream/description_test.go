package upstream

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store"
)

const (
	describedPods = `{"kind":"APIResourceList","groupVersion":"v1","resources":[
		{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"],"shortNames":["po"],"categories":["all"]},
		{"name":"pods/ephemeralcontainers","singularName":"","namespaced":true,"kind":"Pod","verbs":["get","patch"]},
		{"name":"pods/exec","singularName":"","namespaced":true,"kind":"PodExecOptions","verbs":["create","get"]},
		{"name":"pods/log","singularName":"","namespaced":true,"kind":"Pod","verbs":["get"]},
		{"name":"pods/resize","singularName":"","namespaced":true,"kind":"Pod","verbs":["patch","update"]},
		{"name":"pods/status","singularName":"","namespaced":true,"kind":"Pod","verbs":["get","patch","update"]},
		{"name":"podtemplates","singularName":"podtemplate","namespaced":true,"kind":"PodTemplate","verbs":["list"]},
		{"name":"podtemplates/status","singularName":"","namespaced":true,"kind":"PodTemplate","verbs":["get"]}]}`

	describedTills = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"shop.example.com/v1","resources":[
		{"name":"tills","singularName":"till","namespaced":true,"kind":"Till","verbs":["list","watch"],"shortNames":["tl"],"categories":["shop"]},
		{"name":"tills/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get"]},
		{"name":"tills/status","singularName":"","namespaced":true,"kind":"Till","verbs":["get","patch","update"]}]}`

	describedDefinition = `{"metadata":{"uid":"u"},"spec":{"versions":[
		{"name":"v2","additionalPrinterColumns":[{"name":"Other","type":"string","jsonPath":".x"}],"selectableFields":[{"jsonPath":".x"}]},
		{"name":"v1","schema":{"openAPIV3Schema":{"type":"object"}},
			"additionalPrinterColumns":[
				{"name":"Size","type":"integer","format":"int32","description":"drawers","jsonPath":".spec.size"},
				{"name":"Note","type":"string","priority":1,"jsonPath":".spec.note"}],
			"selectableFields":[{"jsonPath":".spec.size"},{"jsonPath":".spec.note"}]}]}}`

	definitionForbidden = `{"name":"tills.shop.example.com","group":"apiextensions.k8s.io","kind":"customresourcedefinitions"}`
)

func TestDescribeResource(t *testing.T) {
	till := store.Description{Singular: "till", ShortNames: []string{"tl"}, Categories: []string{"shop"}, Subresources: []string{"status"}}
	custom := till
	custom.Custom = true
	full := custom
	full.Columns = []store.Column{
		{Name: "Size", Type: "integer", Format: "int32", Description: "drawers", JSONPath: ".spec.size"},
		{Name: "Note", Type: "string", Priority: 1, JSONPath: ".spec.note"},
	}
	full.SelectableFields = []string{".spec.size", ".spec.note"}
	for _, tc := range []struct {
		name     string
		resource Resource
		code     int // of the definition; 0 if it is not asked for
		body     string
		want     store.Description
		err      ErrorClass
	}{
		{"built in", pods, 0, "", store.Description{
			Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"}, Subresources: []string{"ephemeralcontainers", "status"},
		}, ""},
		{"custom", tills, 200, describedDefinition, full, ""},
		{"another version", tills, 200, strings.ReplaceAll(describedDefinition, `"v1"`, `"v3"`), custom, ""},
		{"no definition", tills, 404, statusBody(404, "NotFound", "no", `{"name":"tills.shop.example.com"}`), till, ""},
		{"definition is forbidden", tills, 403, statusBody(403, "Forbidden", "no", definitionForbidden), custom, ""},
		{"a proxy forbids", tills, 403, statusBody(403, "Forbidden", "no", ""), store.Description{}, Forbidden},
		{"down", tills, 503, "down", store.Description{}, Server},
		{"noise", tills, 200, "<html>", store.Description{}, Other},
		{"no such resource", Resource{GVR: schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "till"}}, 0, "", store.Description{}, Gone},
		{"no such version", Resource{GVR: schema.GroupVersionResource{Group: "shop.example.com", Version: "v9", Resource: "tills"}}, 0, "", store.Description{}, Gone},
		{"the group is away", Resource{GVR: schema.GroupVersionResource{Group: "broken.example.com", Version: "v1", Resource: "tills"}}, 0, "", store.Description{}, Server},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := false
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/api/v1":
					reply(w, 200, describedPods)
				case "/apis/shop.example.com/v1":
					reply(w, 200, describedTills)
				case "/apis/broken.example.com/v1":
					reply(w, 503, "the aggregated server is away")
				case "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tills.shop.example.com":
					asked = true
					reply(w, tc.code, tc.body)
				default:
					http.NotFound(w, r)
				}
			})
			d, err := c.Describe(t.Context(), tc.resource)
			require.Equal(t, tc.err, Classify(err), "%v", err)
			require.Equal(t, tc.want, d)
			require.Equal(t, tc.code != 0, asked)
		})
	}
}

func TestServerVersion(t *testing.T) {
	const version = "{\n  \"major\": \"1\",\n  \"gitVersion\": \"v1.36.3\"\n}"
	for _, tc := range []struct {
		name string
		code int
		body string
		want string
		err  ErrorClass
	}{
		{"version", 200, version, version, ""},
		{"cut", 200, version[:len(version)-1], "", Other},
		{"another document", 200, `{"kind":"Status"}`, "", Other},
		{"a login page", 200, "<html>", "", Other},
		{"no credential", 401, statusBody(401, "Unauthorized", "Unauthorized", ""), "", Unauthorized},
		{"down", 503, "down", "", Server},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				require.Equal(t, "/version", r.URL.Path)
				reply(w, tc.code, tc.body)
			})
			body, err := c.ServerVersion(t.Context())
			require.Equal(t, tc.err, Classify(err), "%v", err)
			require.Equal(t, tc.want, string(body))
		})
	}
}
