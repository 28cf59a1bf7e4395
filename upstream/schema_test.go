package upstream

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const tillDefinition = `{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{
	"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"caBundle":"QQ==","url":"https://x"}}},
	"versions":[
		{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}},"additionalPrinterColumns":[{"name":"A"}]},
		{"name":"v2","served":false,"storage":false,"schema":{"openAPIV3Schema":{"type":"string"}}}]}}`

// The digest changes with what determines the form of the objects, and with nothing else.
func TestSchema(t *testing.T) {
	digest := func(body string) string {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tills.shop.example.com", r.URL.Path)
			reply(w, 200, body)
		})
		d, err := c.Schema(t.Context(), tills)
		require.NoError(t, err)
		require.Len(t, d, 32)
		return d
	}
	first := digest(tillDefinition)
	require.Equal(t, "0433160a6b5a11911fb238a64112606e", first, "another digest means a list of every custom resource after an upgrade")
	for _, x := range []struct {
		name     string
		old, now string
		changes  bool
	}{
		{"nothing", "", "", false},
		{"resourceVersion", `"7"`, `"8"`, false},
		{"certificate", "QQ==", "QUE=", false},
		{"columns", `"A"`, `"B"`, false},
		{"selectable fields", `"schema":{`, `"selectableFields":[{"jsonPath":".x"}],"schema":{`, false},
		{"scope, which Definition has", `"spec":{`, `"spec":{"scope":"Cluster",`, false},
		{"names, which Definition has", `"spec":{`, `"status":{"acceptedNames":{"kind":"Till"}},"spec":{`, false},
		{"subresources", `"schema":{`, `"subresources":{"status":{}},"schema":{`, false},
		{"schema of another version", `"string"`, `"array"`, false},
		{"schema", `{"type":"object"}`, `{"type":"object","properties":{"a":{"default":1}}}`, true},
		{"webhook", "https://x", "https://y", true},
		{"strategy", `"Webhook"`, `"None"`, true},
		{"recreated", `"uid":"u"`, `"uid":"z"`, true},
		{"another version is served", `"v2","served":false`, `"v2","served":true`, true},
		{"another version is stored", `"served":false,"storage":false`, `"served":false,"storage":true`, true},
		{"the version is not served", `"v1","served":true`, `"v1","served":false`, true},
		{"unknown fields are kept", `"spec":{`, `"spec":{"preserveUnknownFields":true,`, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			body := strings.Replace(tillDefinition, x.old, x.now, 1)
			require.Equal(t, x.changes, first != digest(body))
		})
	}
}

// Unknown definitions give no schema or an error, never another schema.
func TestNoSchema(t *testing.T) {
	for _, x := range []struct {
		name string
		code int
		body string
		kind ErrorClass
	}{
		{"no definition", 404, statusBody(404, "NotFound", "no", `{"name":"tills.shop.example.com"}`), ""},
		{"no definitions", 404, "404 page not found", Gone},
		{"forbidden", 403, statusBody(403, "Forbidden", "no", ""), Forbidden},
		{"down", 503, "down", Server},
		{"noise", 200, "<html>", Other},
		{"no UID", 200, `{"spec":{}}`, Other},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) { reply(w, x.code, x.body) })
			d, err := c.Schema(t.Context(), tills)
			require.Empty(t, d)
			require.Equal(t, x.kind, Classify(err), "%v", err)
		})
	}
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	for _, r := range []Resource{pods, {GVR: schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}}} {
		d, err := c.Schema(t.Context(), r)
		require.NoError(t, err)
		require.Empty(t, d)
	}
}
