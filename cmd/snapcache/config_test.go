package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/config"
)

// TestCheckFollows: config check refuses a resource of an aggregated API whose lists have no resourceVersion, and
// passes one that can be followed. The server is a script, because no kube-apiserver answers in this way itself.
func TestCheckFollows(t *testing.T) {
	const refused = "resources[0].resource: meters.v1.shop.example.com can't be cached, as it can't be followed"
	for rv, text := range map[string]string{"9": "", "": refused} {
		mux := http.NewServeMux()
		answer := func(pattern, body string) {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Query().Get("watch") == "" {
					_, _ = fmt.Fprint(w, body)
				}
			})
		}
		answer("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
		answer("/apis/shop.example.com/v1", `{"kind":"APIResourceList","groupVersion":"shop.example.com/v1","resources":[
			{"name":"meters","kind":"Meter","namespaced":true,"verbs":["get","list","watch"]}]}`)
		answer("/apis/shop.example.com/v1/meters", `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"`+rv+`"},"items":[]}`)
		server := httptest.NewServer(mux)
		cfg, err := config.Parse("agent.yaml", []byte("apiVersion: snapcache.dev/v1alpha1\nkind: AgentConfiguration\n"+
			"resources: [{resource: meters.v1.shop.example.com}]\n"))
		require.NoError(t, err)
		_, err = askOne(t.Context(), cfg, &rest.Config{Host: server.URL}, true)
		server.Close()
		if text == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, text)
		require.Equal(t, exitUsage, exitCode(err))
	}
}
