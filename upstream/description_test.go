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

	describedDefinition = `{"metadata":{"uid":"u"},"status":{"acceptedNames":{
			"plural":"tills","singular":"till","kind":"Till","listKind":"TillRow","shortNames":["tl"],"categories":["shop"]}},
		"spec":{"scope":"Namespaced","names":{"kind":"Refused"},"versions":[
		{"name":"v2","served":true,"additionalPrinterColumns":[{"name":"Other","type":"string","jsonPath":".x"}],"selectableFields":[{"jsonPath":".x"}]},
		{"name":"v1","served":true,"schema":{"openAPIV3Schema":{"type":"object"}},"subresources":{"status":{},"scale":{}},
			"additionalPrinterColumns":[
				{"name":"Size","type":"integer","format":"int32","description":"drawers","jsonPath":".spec.size"},
				{"name":"Note","type":"string","priority":1,"jsonPath":".spec.note"}],
			"selectableFields":[{"jsonPath":".spec.size"},{"jsonPath":".spec.note"}]}]}}`

	definitionForbidden = `{"name":"tills.shop.example.com","group":"apiextensions.k8s.io","kind":"customresourcedefinitions"}`
)

// TestDefinition reads definitions and discovery documents.
func TestDefinition(t *testing.T) {
	till := store.Description{Singular: "till", ShortNames: []string{"tl"}, Categories: []string{"shop"}, Subresources: []string{"status"}}
	custom := till
	custom.Custom = true
	full := custom
	full.ListKind = "TillRow"
	full.Columns = []store.Column{
		{Name: "Size", Type: "integer", Format: "int32", Description: "drawers", JSONPath: ".spec.size"},
		{Name: "Note", Type: "string", Priority: 1, JSONPath: ".spec.note"},
	}
	full.SelectableFields = []string{".spec.size", ".spec.note"}
	usual := full
	usual.ListKind = ""
	renamed := full
	renamed.Singular, renamed.ShortNames, renamed.Categories, renamed.Subresources = "drawer", []string{"dr"}, []string{"money"}, nil
	served := func(kind string, namespaced bool) Resource {
		return Resource{GVR: tills.GVR, Kind: kind, Namespaced: namespaced}
	}
	in := func(group, version, resource string) Resource {
		return Resource{GVR: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}}
	}
	for _, tc := range []struct {
		name     string
		resource Resource
		code     int // of the definition; 0 if it is not asked for
		body     string
		is       Resource // as it is served
		want     store.Description
		err      ErrorClass
	}{
		{"built in", pods, 0, "", pods, store.Description{
			Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"}, Subresources: []string{"ephemeralcontainers", "status"},
		}, ""},
		{"custom", tills, 200, describedDefinition, served("Till", true), full, ""},
		{"usual kind of lists", tills, 200, strings.ReplaceAll(describedDefinition, "TillRow", "TillList"), served("Till", true), usual, ""},
		{"another scope", tills, 200, strings.ReplaceAll(describedDefinition, "Namespaced", "Cluster"), served("Till", false), full, ""},
		{"another kind", tills, 200, strings.ReplaceAll(describedDefinition, `"Till"`, `"Register"`), served("Register", true), full, ""},
		{"other names", tills, 200, strings.NewReplacer(`"till"`, `"drawer"`, `"tl"`, `"dr"`, `"shop"`, `"money"`, `"status":{},`, "").Replace(describedDefinition), served("Till", true), renamed, ""},
		{"names are refused", tills, 200, strings.ReplaceAll(describedDefinition, `"kind":"Till"`, `"kind":""`), in("", "", ""), store.Description{}, Gone},
		{"another version", tills, 200, strings.ReplaceAll(describedDefinition, `"v1"`, `"v3"`), in("", "", ""), store.Description{}, Gone},
		{"the version is not served", tills, 200, strings.ReplaceAll(describedDefinition, `"v1","served":true`, `"v1","served":false`), in("", "", ""), store.Description{}, Gone},
		{"no definition", tills, 404, statusBody(404, "NotFound", "no", `{"name":"tills.shop.example.com"}`), served("Till", true), till, ""},
		{"definition is forbidden", tills, 403, statusBody(403, "Forbidden", "no", definitionForbidden), served("Till", true), custom, ""},
		{"a proxy forbids", tills, 403, statusBody(403, "Forbidden", "no", ""), in("", "", ""), store.Description{}, Forbidden},
		{"down", tills, 503, "down", in("", "", ""), store.Description{}, Server},
		{"noise", tills, 200, "<html>", in("", "", ""), store.Description{}, Other},
		{"no such resource", in("", "v1", "pod"), 0, "", in("", "", ""), store.Description{}, Gone},
		{"no such version", in("apps", "v9", "deployments"), 0, "", in("", "", ""), store.Description{}, Gone},
		{"the group is away", in("broken", "v1", "things"), 0, "", in("", "", ""), store.Description{}, Server},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := false
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/api/v1":
					reply(w, 200, describedPods)
				case "/apis/shop.example.com/v1":
					reply(w, 200, describedTills)
				case "/apis/broken/v1":
					reply(w, 503, "the aggregated server is away")
				case "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tills.shop.example.com":
					asked = true
					reply(w, tc.code, tc.body)
				default:
					http.NotFound(w, r)
				}
			})
			d, err := c.Definition(t.Context(), tc.resource)
			require.Equal(t, tc.err, Classify(err), "%v", err)
			require.Equal(t, tc.code != 0, asked)
			require.Equal(t, tc.code == 403 && err == nil, d.Unread != nil)
			require.Equal(t, tc.code == 200 && tc.body != "<html>", d.Schema != "")
			if err == nil {
				require.Equal(t, tc.is, d.Resource)
				require.Equal(t, tc.want, d.Description)
			}
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
