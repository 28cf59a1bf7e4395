package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
	"github.com/snapcache/snapcache/store"
)

// routes has who answers each request, by what is cached of the resource: with nothing, or a resource that the
// server has not named yet, rows of pods have the cells in uncached. A cell has the answer without
// forwarding and, after >, with it, if that is another one; the last one is while the server can be reached.
//
//	cache   the collection; of one object both, if the server is asked for one that the cache lacks
//	server  it is forwarded
//	!       it is not authorized here
//	404     it is refused with that code
const routes = `
request                                                | all             | of node n1      | of a
GET /api/v1/pods                                       | cache           | 403 > server!   | 403 > server!
GET /api/v1/pods?watch=1                               | cache           | 403 > server!   | 403 > server!
GET /api/v1/watch/pods                                 | cache           | 403 > server!   | 403 > server!
GET /api/v1/namespaces/a/pods                          | cache           | 403 > server!   | cache
GET /api/v1/namespaces/b/pods?watch=1                  | cache           | 403 > server!   | 403 > server!
GET /api/v1/watch/namespaces/a/pods/x                  | cache           | 403 > server!   | cache
GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1      | cache           | cache           | 403 > server!
GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn2      | cache           | 403 > server!   | 403 > server!
GET /api/v1/pods?fieldSelector=metadata.namespace%3Da  | cache           | 403 > server!   | cache
GET /api/v1/pods?fieldSelector=spec.none%3Dx           | 400             | 400             | 400
GET /api/v1/pods?fieldSelector=!                       | 400             | 400             | 400
GET /api/v1/namespaces/a/pods/x                        | cache           | cache > both    | cache
GET /api/v1/namespaces/b/pods/x                        | cache           | cache > both    | 403 > server!
GET /api/v1/namespaces/a/pods/x/status                 | cache           | cache > both    | cache
GET /api/v1/namespaces/a/pods/x/log                    | 405 > server!   | 405 > server!   | 405 > server!
GET /api/v1/namespaces/a/pods/x/none                   | 404 > server!   | 404 > server!   | 404 > server!
GET /api/v1/pods/x                                     | 404 > server!   | 404 > server!   | 404 > server!
GET /api/v1/watch/namespaces/a/pods/x/log              | 404 > server!   | 404 > server!   | 404 > server!
GET /api/v1/namespaces/a%2Fpods                        | cache > server! | 403 > server!   | cache > server!
GET //api/v1/pods                                      | cache > server! | 403 > server!   | 403 > server!
HEAD,POST,DELETE,OPTIONS,get /api/v1/namespaces/a/pods | 405 > server!   | 405 > server!   | 405 > server!
PUT,PATCH,DELETE,HEAD /api/v1/namespaces/a/pods/x      | 405 > server!   | 405 > server!   | 405 > server!
POST /api/v1/namespaces/a/pods/x/exec                  | 405 > server!   | 405 > server!   | 405 > server!
POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews | review!
GET /apis/authorization.k8s.io/v1/selfsubjectaccessreviews | 405 > server!
POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x | 404 > server!
POST /apis/authorization.k8s.io/v1/namespaces/a/selfsubjectaccessreviews | 404 > server!
GET /api/v1/services                                   | 404 > server!
GET /api,/apis,/api/v1,/apis/none.io/v1                | discovery > discovery > server
GET /openapi/v2                                        | discovery > discovery > server
GET /openapi/v3,/openapi/v3/api/v1                     | openapi > openapi > server
GET /version,/version/                                 | version > version > server
POST /api,/api/v1,/openapi/v3                          | discovery > server!
POST /version                                          | version > server!
GET,POST,get /healthz,/livez,/readyz                   | health!
GET /metrics                                           | metrics
POST /metrics                                          | discovery > server!
GET /,/logs/,//version,/healthz/x                      | discovery > server!
`

// uncached are the cells of the first two states.
var uncached = []string{"404 > server!", "503 > server!"}

// TestRoute: who answers each kind of request, with each state of what is cached, with forwarding and without,
// while the server can be reached and while it can't.
func TestRoute(t *testing.T) {
	part := func(change func(*store.Info)) []*Collection {
		info := pods
		change(&info)
		return []*Collection{{
			Info:        func() store.Info { return info },
			Description: described(store.Description{Subresources: []string{"status"}}),
		}}
	}
	states := []struct {
		cached  []*Collection
		unknown []Unknown
	}{
		{},
		{unknown: []Unknown{{schema.GroupResource{Resource: "pods"}, "v1", "the server is away"}}},
		{cached: part(func(*store.Info) {})},
		{cached: part(func(i *store.Info) { i.FieldSelector = "spec.nodeName=n1" })},
		{cached: part(func(i *store.Info) { i.Namespace = "a" })},
	}
	none := http.NotFoundHandler()
	opts := func(state int) Options {
		return Options{
			Collections: func() []*Collection { return states[state].cached },
			Unknown:     func() []Unknown { return states[state].unknown },
			OpenAPI:     none, Scrape: none,
		}
	}
	lines := strings.Split(strings.TrimSpace(routes), "\n")[1:]
	for _, line := range lines {
		request, row, _ := strings.Cut(line, "|")
		methods, uris, _ := strings.Cut(strings.TrimSpace(request), " ")
		cells := strings.Split(row, "|")
		if len(cells) > 1 { // else one stands for all states
			cells = append(slices.Clone(uncached), cells...)
		}
		for state := range states {
			want := strings.Split(cells[min(state, len(cells)-1)], ">")
			for forwarding, f := range []*forwarder{nil, {}, {takes: true}, {takes: true, reaches: true}} {
				o, at := opts(state), max(0, forwarding-1)
				if f != nil {
					o.Forward = f
				}
				s := New(o)
				for _, method := range strings.Split(methods, ",") {
					for _, uri := range strings.Split(uris, ",") {
						r := newRequest(httptest.NewRequest(method, uri, nil))
						require.Equal(t, strings.TrimSpace(want[min(at, len(want)-1)]), routed(s.route(r)),
							"%s %s, state %d, forwarding %d", method, uri, state, forwarding)
					}
				}
			}
		}
	}
}

// routed returns a decision in the words of routes.
func routed(d decision) string {
	text := map[answerer]string{
		byServer: "server", byHealth: "health", byMetrics: "metrics", byVersion: "version", byOpenAPI: "openapi",
		byDiscovery: "discovery", byReview: "review", byObject: "cache", byCollection: "cache",
	}[d.by]
	switch {
	case errors.Is(d.err, errNoPage):
		text = "404"
	case d.err != nil:
		text = fmt.Sprint(status.Of(d.err).Code)
	case d.elsewhere && d.by == byObject:
		text = "both"
	}
	if d.open {
		text += "!"
	}
	return text
}

// TestRefreshedRequestIsForwarded: a request that the collection turns out not to cover, once its definition
// was read again, is forwarded as if that had been known before.
func TestRefreshedRequestIsForwarded(t *testing.T) {
	info := pods
	info.LabelSelector = "tier=front"
	c := &Collection{Info: func() store.Info { return info }, Description: described(store.Description{Custom: true})}
	c.Refresh = func(context.Context) { c.Description = described(byApp) }
	f := &forwarder{takes: true}
	s := New(Options{Collections: func() []*Collection { return []*Collection{c} }, Forward: f})
	a := httptest.NewRecorder()
	const uri = "/api/v1/pods?fieldSelector=metadata.labels.app%3Dweb"
	s.WithBodies(s).ServeHTTP(a, httptest.NewRequest(http.MethodGet, uri, nil))
	require.Equal(t, http.StatusTeapot, a.Code, a.Body)
	require.Equal(t, []string{uri}, f.paths)
}
