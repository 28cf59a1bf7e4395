package kubeapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store"
)

// byApp is a definition by which objects can be selected by a label as a field.
var byApp = store.Description{Custom: true, SelectableFields: []string{".metadata.labels.app"}, ListKind: "PodBunch"}

// TestDefinitionEndsWatches: if the definition changes, watches end in good order, with a bookmark. The
// next one, from there or from before, knows the other fields.
func TestDefinitionEndsWatches(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		plain, marked := open(t, w, "resourceVersion=12&labelSelector=app"), open(t, w, "resourceVersion=12&allowWatchBookmarks=true")
		w.change("a/y", "web", "")
		w.change("b/y", "db", "")
		require.False(t, plain.ended())
		w.served.Description = described(byApp)
		w.events.Wake()
		synctest.Wait()
		for _, s := range []*stream{plain, marked} {
			require.True(t, s.ended())
			require.False(t, s.cut)
		}
		require.Equal(t, []string{"ADDED a/y@13", "ADDED b/y@14"}, plain.texts())
		require.Equal(t, []string{"ADDED a/y@13", "ADDED b/y@14", "BOOKMARK @14"}, marked.texts())

		s := open(t, w, "resourceVersion=12&fieldSelector=metadata.labels.app%3Dweb")
		w.change("b/y", "web", "")
		require.Equal(t, []string{"ADDED a/y@13", "ADDED b/y@15"}, s.texts())
		require.False(t, s.ended())
	})
}

// TestUnknownFieldIsLookedUp: a request that names something that the resource does not have waits for
// its definition to be read again, and any other request does not.
func TestUnknownFieldIsLookedUp(t *testing.T) {
	const selected = "/api/v1/pods?fieldSelector=metadata.labels.app%3Dweb"
	inBubble(t, func(t *testing.T, w *world) {
		old, asked := store.Description{Custom: true}, 0
		w.served.Description = described(old)
		w.served.Refresh = func(context.Context) { asked++ }
		code := func(path string) int {
			answer := httptest.NewRecorder()
			w.server.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			return answer.Code
		}
		require.Equal(t, http.StatusOK, code("/api/v1/pods?fieldSelector=metadata.name%3Dx"))
		require.Equal(t, http.StatusOK, code("/api/v1/namespaces/a/pods/x"))
		require.Equal(t, http.StatusMethodNotAllowed, code("/api/v1/namespaces/a/pods/x/log"))
		require.Zero(t, asked)
		for i, path := range []string{selected, "/api/v1/pods/x", "/api/v1/namespaces/a/pods/x/status", "/api/v1/namespaces/a/pods/x/none"} {
			require.GreaterOrEqual(t, code(path), 400, path)
			require.Equal(t, i+1, asked, path)
		}
		w.served.Refresh = func(context.Context) { w.served.Description = described(byApp) }
		require.Equal(t, http.StatusOK, code(selected))
		require.Equal(t, http.StatusOK, code(selected+"&watch=1&timeoutSeconds=1"))
	})
}

func TestListKind(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.served.Description = described(byApp)
		answer := httptest.NewRecorder()
		w.server.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
		require.Contains(t, answer.Body.String(), `"kind":"PodBunch"`)
	})
}

// TestUnknownResources: with resources that the server has not named, the others are served, and
// documents lack them.
func TestUnknownResources(t *testing.T) {
	in := func(group, version, resource, problem string) Unknown {
		return Unknown{schema.GroupResource{Group: group, Resource: resource}, version, problem}
	}
	const away = "the server is away"
	for _, tc := range []struct {
		name    string
		unknown unknowns
		bare    bool // nothing is served
		codes   map[string]int
	}{
		{"a version is not known", unknowns{in("example.com", "", "widgets", away)}, false, map[string]int{
			"/api": 200, "/apis": 200, "/api/v1": 200, "/api/v1/pods": 200, "/apis/example.com": 404, "/apis/example.com/v1": 404,
			"/apis/example.com/v1/widgets": 503, "/apis/example.com/v1/namespaces/a/widgets/x": 503, "/apis/example.com/v1/others": 404, "/api/v1/nodes": 404,
		}},
		{"a version is known", unknowns{in("example.com", "v1", "widgets", away)}, false, map[string]int{
			"/apis": 200, "/apis/example.com": 200, "/apis/example.com/v1": 503, "/apis/example.com/v2": 404,
			"/apis/example.com/v1/widgets": 503, "/apis/example.com/v2/widgets": 404,
		}},
		{"of a group that is served", unknowns{in("", "", "nodes", away)}, false, map[string]int{
			"/api": 200, "/api/v1": 200, "/api/v1/pods": 200, "/api/v1/nodes": 503, "/api/v1/secrets": 404,
		}},
		{"in a moment", unknowns{in("example.com", "", "widgets", "")}, false, map[string]int{
			"/api": 429, "/apis": 429, "/api/v1": 429, "/api/v1/pods": 200, "/apis/example.com/v1/widgets": 429, "/api/v1/nodes": 404,
		}},
		{"all", unknowns{in("", "", "pods", away)}, true, map[string]int{
			"/api": 429, "/apis": 429, "/api/v1": 429, "/api/v1/pods": 503, "/healthz": 200,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := started(t, "")
				served := []*Collection{w.served}
				if tc.bare {
					served = nil
				}
				s := New(Options{Collections: func() []*Collection { return served }, Unknown: func() []Unknown { return tc.unknown }})
				for path, code := range tc.codes {
					answer := httptest.NewRecorder()
					s.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
					require.Equal(t, code, answer.Code, "%s: %s", path, answer.Body)
					require.Equal(t, code == http.StatusTooManyRequests, answer.Header().Get("Retry-After") != "", path)
					if code == http.StatusServiceUnavailable {
						require.Contains(t, answer.Body.String(), away, path)
					}
				}
			})
		})
	}
}
