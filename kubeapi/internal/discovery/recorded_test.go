package discovery

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store"
)

// recorded are the documents of a kube-apiserver with the definitions of tills, shops and widgets.
type recorded struct {
	Legacy     map[string]map[string]any `json:"legacy"`
	Aggregated map[string]map[string]any `json:"aggregated"`
}

func readRecorded(t *testing.T) recorded {
	raw, err := os.ReadFile("testdata/kube-apiserver-v1.36.3.json")
	require.NoError(t, err)
	var server recorded
	require.NoError(t, json.Unmarshal(raw, &server))
	return server
}

func custom(group string) bool { return strings.HasSuffix(group, ".com") }

// resources returns what a cache can serve of the server's resources, from its legacy documents.
func (s recorded) resources(t *testing.T) []Resource {
	var all []Resource
	for _, doc := range s.Legacy {
		if doc["kind"] != "APIResourceList" {
			continue
		}
		gv, err := schema.ParseGroupVersion(doc["groupVersion"].(string))
		require.NoError(t, err)
		for _, r := range kept(doc["resources"], "name") {
			name, sub, _ := strings.Cut(r["name"].(string), "/")
			if sub != "" {
				last := &all[len(all)-1]
				last.Subresources = append(last.Subresources, sub)
				continue
			}
			all = append(all, Resource{
				Info: store.Info{Group: gv.Group, Version: gv.Version, Resource: name, Kind: r["kind"].(string), Namespaced: r["namespaced"].(bool)},
				Description: store.Description{
					Singular: r["singularName"].(string), ShortNames: texts(r["shortNames"]), Categories: texts(r["categories"]), Custom: custom(gv.Group),
				},
			})
		}
	}
	require.Greater(t, len(all), 50)
	return all
}

// kept returns the entries of a list that a cache can serve, with the verbs of a read-only API. name
// is the field with their names.
func kept(list any, name string) []map[string]any {
	var out []map[string]any
	for _, entry := range objects(list) {
		verbs := texts(entry["verbs"])
		full := entry[name].(string)
		_, sub, isSub := strings.Cut(full, "/")
		if name == "subresource" {
			sub, isSub = full, true
		}
		switch {
		case isSub && slices.Contains([]string{"ephemeralcontainers", "resize", "status"}, sub) && slices.Contains(verbs, "get"):
			entry["verbs"] = []string{"get"}
		case !isSub && slices.Contains(verbs, "list") && slices.Contains(verbs, "watch"):
			entry["verbs"] = []string{"get", "list", "watch"}
		default:
			continue
		}
		delete(entry, "storageVersionHash")
		if subs := kept(entry["subresources"], "subresource"); len(subs) > 0 {
			entry["subresources"] = subs
		} else {
			delete(entry, "subresources")
		}
		out = append(out, entry)
	}
	return out
}

func objects(list any) []map[string]any {
	var out []map[string]any
	for _, entry := range asList(list) {
		out = append(out, entry.(map[string]any))
	}
	return out
}

func texts(list any) []string {
	var out []string
	for _, entry := range asList(list) {
		out = append(out, entry.(string))
	}
	return out
}

func asList(list any) []any {
	out, _ := list.([]any)
	return out
}

// served returns the groups of a list that have resources, in the order of groups.sorted. name
// returns the name of an entry.
func served(list any, resources []Resource, name func(map[string]any) string) []map[string]any {
	out := slices.DeleteFunc(objects(list), func(g map[string]any) bool {
		return !slices.ContainsFunc(resources, func(r Resource) bool { return r.Group == name(g) })
	})
	slices.SortFunc(out, func(a, b map[string]any) int {
		if x, y := custom(name(a)), custom(name(b)); x != y {
			return map[bool]int{true: 1, false: -1}[x]
		}
		return cmp.Compare(name(a), name(b))
	})
	return out
}

// TestBesideServer compares all documents with those of a kube-apiserver, field by field, after the
// removal of what a cache does not serve.
func TestBesideServer(t *testing.T) {
	resources := readRecorded(t).resources(t)
	server, d := readRecorded(t), New(resources)
	compared := 0
	for path, want := range server.Legacy {
		switch want["kind"] {
		case "APIResourceList":
			list := kept(want["resources"], "name")
			if len(list) == 0 {
				require.NotContains(t, d.byPath, path)
				continue
			}
			want["resources"] = list
		case "APIGroupList":
			want["groups"] = served(want["groups"], resources, func(g map[string]any) string { return g["name"].(string) })
		case "APIGroup":
			if !slices.ContainsFunc(resources, func(r Resource) bool { return r.Group == want["name"] }) {
				require.NotContains(t, d.byPath, path)
				continue
			}
		}
		requireJSON(t, want, get(t, d, path, "application/json"))
		compared++
	}
	require.Greater(t, compared, 30)
	for path, want := range server.Aggregated {
		for _, g := range objects(want["items"]) {
			for _, v := range objects(g["versions"]) {
				v["resources"] = kept(v["resources"], "resource")
			}
		}
		if path == "/apis" {
			want["items"] = served(want["items"], resources, func(g map[string]any) string { return g["metadata"].(map[string]any)["name"].(string) })
		}
		requireJSON(t, want, get(t, d, path, aggregatedType))
	}
}

func requireJSON(t *testing.T, want any, got *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, http.StatusOK, got.Code)
	raw, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(raw), got.Body.String())
	require.True(t, strings.HasSuffix(got.Body.String(), "}\n"), "a kube-apiserver's documents end with a newline")
}

func get(t *testing.T, d *Documents, path, accept string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:23799"
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	require.True(t, d.Serve(w, r, false), path)
	return w
}
