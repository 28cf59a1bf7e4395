package kubeapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// forwarder is a server of another kind.
type forwarder struct {
	takes, reaches bool
	silent         bool // it has no answer
	paths          []string
	answer         http.HandlerFunc // nil for 418
}

func (f *forwarder) Takes(*http.Request) bool   { return f.takes }
func (f *forwarder) Reaches(*http.Request) bool { return f.takes && f.reaches }

func (f *forwarder) OrElse(other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.silent {
			other.ServeHTTP(w, r)
			return
		}
		f.ServeHTTP(w, r)
	})
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.paths = append(f.paths, r.RequestURI)
	if f.answer != nil {
		f.answer(w, r)
		return
	}
	w.WriteHeader(http.StatusTeapot)
}

// partly is a server with pods of one node, config maps of one namespace, and nodes, of which nothing is
// stored. A caller may do everything, or nothing.
func partly(t *testing.T, f *forwarder, allowed bool) (s *Server, asked *[]string) {
	t.Helper()
	asked = new([]string)
	var all []*Collection
	for _, info := range []store.Info{
		{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true, FieldSelector: "spec.nodeName=edge-1"},
		{ID: "configmaps@a", Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true, Namespace: "a"},
		{ID: "nodes", Version: "v1", Resource: "nodes", Kind: "Node"},
	} {
		db := memory.New()
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		coll, err := db.Open(info)
		require.NoError(t, err)
		all = append(all, &Collection{
			Info: func() store.Info { return info }, View: coll.View, State: coll.State,
			Description: described(store.Description{Subresources: []string{"status"}}),
		})
	}
	opts := Options{Collections: func() []*Collection { return all }, Authorize: func(_ context.Context, ask access.Request) error {
		*asked = append(*asked, text(ask))
		if allowed {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	}}
	if f != nil {
		opts.Forward = f
	}
	return New(opts), asked
}

// TestForwardedDocuments: a document that a silent server was asked for is the cache's own, anything else is the
// Forwarder's refusal.
func TestForwardedDocuments(t *testing.T) {
	for uri, local := range map[string]int{
		"/apis": 200, "/api": 200, "/api/v1": 200, "/apis/none.example.com/v1": 404, "/version": 429, "/openapi/v3": 404, "/api/v1/services": 418,
	} {
		f := &forwarder{takes: true, reaches: true}
		s, asked := partly(t, f, true)
		ask := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.WithBodies(s).ServeHTTP(w, httptest.NewRequest(http.MethodGet, uri, nil))
			return w
		}
		require.Equal(t, http.StatusTeapot, ask().Code, uri)
		f.silent = true
		answer := ask()
		require.Equal(t, local, answer.Code, "%s: %s", uri, answer.Body)
		if local != http.StatusTeapot {
			require.Len(t, *asked, 2, "%s: it is authorized once for each", uri)
		}
	}
}

// TestForwards: which requests are forwarded, without an authorization here; all others are authorized.
func TestForwards(t *testing.T) {
	const local, documents, forwarded = "local", "documents", "forwarded"
	for _, tc := range []struct{ method, uri, want string }{
		{"GET", "/api/v1/nodes", local},
		{"GET", "/api/v1/nodes/", local},
		{"GET", "/api/v1/nodes/x", local},
		{"GET", "/api/v1/nodes/x/status", local},
		{"GET", "/api/v1/nodes/a%3Ab", local},
		{"GET", "/api/v1/watch/nodes", local},
		{"GET", "/api/v1/watch/nodes/x", local},
		{"GET", "/api/v1/nodes?watch=1&resourceVersion=x", local},
		{"GET", "/api/v1/nodes?fieldSelector=!", local},
		{"HEAD", "/api/v1/nodes", forwarded},
		{"POST", "/api/v1/nodes", forwarded},
		{"PUT", "/api/v1/nodes/x", forwarded},
		{"PUT", "/api/v1/nodes/x/status", forwarded},
		{"PATCH", "/api/v1/nodes/x", forwarded},
		{"DELETE", "/api/v1/nodes/x", forwarded},
		{"DELETE", "/api/v1/nodes", forwarded},
		{"OPTIONS", "/api/v1/nodes", forwarded},
		{"get", "/api/v1/nodes", forwarded},
		{"GET", "/api/v1/nodes/x/proxy/", forwarded},
		{"GET", "/api/v1/nodes/x/proxy/api/v1/nodes", forwarded},
		{"GET", "/api/v1/nodes/x/anything", forwarded},
		{"GET", "/api/v1/namespaces/a/nodes", forwarded},
		{"GET", "/api/v1/namespaces/a/pods/x/log?follow=1", forwarded},
		{"GET", "/api/v1/namespaces/a/pods/x/exec", forwarded},
		{"GET", "/api/v1/namespaces/a/pods/x/portforward", forwarded},
		{"GET", "/api/v1/watch/namespaces/a/pods/x/log", forwarded},
		// The scope.
		{"GET", "/api/v1/pods", forwarded},
		{"GET", "/api/v1/namespaces/a/pods", forwarded},
		{"GET", "/api/v1/pods?watch=1", forwarded},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge-1", local},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge-1&watch=1", local},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge-2", forwarded},
		{"GET", "/api/v1/namespaces/a/pods/x", local}, // it may be there
		{"GET", "/api/v1/namespaces/a/configmaps", local},
		{"GET", "/api/v1/namespaces/a/configmaps/x", local},
		{"GET", "/api/v1/configmaps?fieldSelector=metadata.namespace%3Da", local},
		{"GET", "/api/v1/configmaps", forwarded},
		{"GET", "/api/v1/namespaces/b/configmaps", forwarded},
		{"GET", "/api/v1/namespaces/b/configmaps/x", forwarded},
		{"GET", "/api/v1/watch/namespaces/b/configmaps", forwarded},
		{"GET", "/api/v1/watch/namespaces/b/configmaps/x", forwarded},
		// What is not cached.
		{"GET", "/api/v1/services", forwarded},
		{"GET", "/api/v2/nodes", forwarded},
		{"GET", "/apis/apps/v1/deployments", forwarded},
		{"GET", "/", forwarded},
		{"GET", "/metrics", forwarded},
		{"GET", "/logs/", forwarded},
		// Documents are the server's, if it can be reached.
		{"GET", "/api", documents},
		{"GET", "/apis", documents},
		{"GET", "/apis/", documents},
		{"GET", "/api/v1", documents},
		{"GET", "/apis/apps", documents},
		{"GET", "/apis/apps/v1", documents},
		{"GET", "/version", documents},
		{"GET", "/openapi/v2", documents},
		{"GET", "/openapi/v3/api/v1", documents},
		{"POST", "/version", forwarded},
		// Paths that servers may read in different ways.
		{"GET", "//api/v1/nodes", forwarded},
		{"GET", "/api//v1/nodes", forwarded},
		{"GET", "/api/v1/./nodes", forwarded},
		{"GET", "/api/v1/x/../nodes", forwarded},
		{"GET", "/api/v1/%2e%2e/v1/nodes", forwarded},
		{"GET", "/api/v1/nodes//", forwarded},
		{"GET", "/api/v1%2fnodes", forwarded},
		{"GET", "/api/v1/namespaces/b%2Fconfigmaps", forwarded},
		{"GET", "/healthz/../api/v1/secrets", forwarded},
		{"GET", "/version/../api/v1/nodes", forwarded},
		{"GET", "//version", forwarded},
	} {
		t.Run(tc.method+" "+tc.uri, func(t *testing.T) {
			for _, f := range []*forwarder{nil, {}, {takes: true}, {takes: true, reaches: true}} {
				s, asked := partly(t, f, tc.want == documents && f != nil && f.reaches)
				w := httptest.NewRecorder()
				body := ""
				if tc.method == "POST" {
					body = "{}"
				}
				s.WithBodies(s).ServeHTTP(w, httptest.NewRequest(tc.method, tc.uri, strings.NewReader(body)))
				away := f != nil && f.takes && (tc.want == forwarded || tc.want == documents && f.reaches)
				if away {
					require.Equal(t, []string{tc.uri}, f.paths)
					require.Equal(t, http.StatusTeapot, w.Code)
					require.Equal(t, tc.want == documents, len(*asked) == 1, "%v", *asked)
					continue
				}
				require.Equal(t, http.StatusForbidden, w.Code)
				require.Len(t, *asked, 1, "authorizations")
				require.True(t, f == nil || f.paths == nil)
			}
		})
	}
}

// TestForwardsDocumentsOnlyIfAllowed: a document is not forwarded for a caller that may not have it here.
func TestForwardsDocumentsOnlyIfAllowed(t *testing.T) {
	for _, path := range []string{"/api", "/apis/apps/v1", "/version", "/openapi/v3"} {
		f := &forwarder{takes: true, reaches: true}
		s, asked := partly(t, f, false)
		w := httptest.NewRecorder()
		s.WithBodies(s).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		require.Equal(t, http.StatusForbidden, w.Code)
		require.Equal(t, []string{"get " + path}, *asked)
		require.Empty(t, f.paths)
	}
}

// TestHealthIsNotForwarded: health is the cache's own.
func TestHealthIsNotForwarded(t *testing.T) {
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		f := &forwarder{takes: true, reaches: true}
		s, _ := partly(t, f, false)
		w := httptest.NewRecorder()
		s.WithBodies(s).ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		require.Equal(t, "ok", w.Body.String())
		require.Empty(t, f.paths)
	}
}

// TestForwardsUncachedObjects: an object that no collection would have is asked of the server, once it
// is known that the caller may read it; one that the cache has, or would have, is answered here.
func TestForwardsUncachedObjects(t *testing.T) {
	w := newWorld(t, "")
	w.start()
	t.Cleanup(w.close)
	w.put("a/x", &pod{ns: "a", name: "x"})
	w.list()
	w.queue.Close()
	require.NoError(t, <-w.done)
	w.queue = nil
	f := &forwarder{takes: true}
	whole := w.server.opts.Collections()[0]
	part := *whole
	info := pods
	info.FieldSelector = "spec.nodeName=edge-1"
	part.Info = func() store.Info { return info }
	part.View = func() (store.View, error) {
		v, err := whole.View()
		return scoped{v, info}, err
	}
	refused := false
	for _, tc := range []struct {
		name, path string
		of         *Collection
		refused    bool
		want       int
		counted    []ProgramCounts
	}{
		{"there", "/api/v1/namespaces/a/pods/x", &part, false, http.StatusOK, []ProgramCounts{{Name: otherPrograms, Requests: 1}}},
		{"elsewhere", "/api/v1/namespaces/a/pods/y", &part, false, http.StatusTeapot, []ProgramCounts{{Name: otherPrograms, Forwarded: 1}}},
		{"refused", "/api/v1/namespaces/a/pods/y", &part, true, http.StatusForbidden, nil},
		{"nowhere", "/api/v1/namespaces/a/pods/y", whole, false, http.StatusNotFound, []ProgramCounts{{Name: otherPrograms, Requests: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused = tc.refused
			s := New(Options{
				Collections: func() []*Collection { return []*Collection{tc.of} }, Forward: f,
				Authorize: func(context.Context, access.Request) error {
					if refused {
						return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
					}
					return nil
				},
			})
			a := httptest.NewRecorder()
			s.WithBodies(s).ServeHTTP(a, httptest.NewRequest("GET", tc.path, nil))
			require.Equal(t, tc.want, a.Code)
			require.Equal(t, tc.counted, s.opts.Metrics.Programs())
			if tc.want == http.StatusTeapot {
				require.Empty(t, a.Header(), "the age is that of the cache")
			}
		})
	}
}

// TestForwardedWatchRightWithdrawn: a forwarded watch ends soon after the server would refuse it, and
// nothing else does.
func TestForwardedWatchRightWithdrawn(t *testing.T) {
	for _, tc := range []struct {
		name, method, uri string
		refused, ends     bool
	}{
		{"watch", "GET", "/api/v1/services?watch=true", true, true},
		{"watch of one", "GET", "/api/v1/services?watch=1&fieldSelector=metadata.name%3Dx", true, true},
		{"old form", "GET", "/api/v1/watch/namespaces/a/services", true, true},
		{"not covered", "GET", "/api/v1/namespaces/b/configmaps?watch=1", true, true},
		{"encoded slash", "GET", "/api/v1/namespaces/a%2Fservices?watch=1", true, true},
		{"allowed", "GET", "/api/v1/services?watch=1", false, false},
		{"list", "GET", "/api/v1/services", true, false},
		{"log", "GET", "/api/v1/namespaces/a/pods/x/log?follow=1", true, false},
		{"exec", "GET", "/api/v1/namespaces/a/pods/x/exec?watch=1", true, false},
		{"no resource", "GET", "/logs/x?watch=1", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var refused atomic.Bool
				f := &forwarder{takes: true, reaches: true, answer: func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusOK)
					<-r.Context().Done()
					panic(http.ErrAbortHandler)
				}}
				s := New(Options{Collections: func() []*Collection { return nil }, Forward: f, Authorize: func(_ context.Context, ask access.Request) error {
					require.True(t, ask.Continues && ask.Forwarded)
					require.Equal(t, "watch", ask.Resource.Verb)
					if refused.Load() {
						return errors.New("no")
					}
					return nil
				}})
				ctx, cancel := context.WithCancel(t.Context())
				over := make(chan struct{})
				go func() {
					defer close(over)
					defer func() { require.Equal(t, http.ErrAbortHandler, recover()) }()
					s.WithBodies(s).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, tc.method, tc.uri, nil))
				}()
				time.Sleep(time.Hour)
				refused.Store(tc.refused)
				time.Sleep(access.RecheckInterval + time.Second)
				synctest.Wait()
				require.Equal(t, tc.ends, isClosed(over))
				cancel()
				<-over
				code := "499"
				if tc.ends {
					code = "403"
				}
				verb := newRequest(httptest.NewRequest(tc.method, tc.uri, nil)).forwardedVerb()
				require.EqualValues(t, 1, valueOf(t, s.opts.Metrics.forwarded.WithLabelValues(verb, code)))
			})
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// scoped is a view of a collection that another one is stored as.
type scoped struct {
	store.View
	info store.Info
}

func (s scoped) Info() store.Info { return s.info }

// TestForwardedMetrics: forwarded requests are counted by verb and code, with few values.
func TestForwardedMetrics(t *testing.T) {
	code := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch code {
		case 0:
			_, _ = io.WriteString(w, "ok")
		case 1:
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		case http.StatusSwitchingProtocols:
			conn, buffer, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = buffer.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
				_ = buffer.Flush()
				_ = conn.Close()
			}
		default:
			w.WriteHeader(code)
		}
	})
	s := New(Options{Collections: func() []*Collection { return nil }, Forward: &forwarder{takes: true, reaches: true, answer: h}})
	server := httptest.NewServer(s.WithBodies(s))
	defer server.Close()
	for _, tc := range []struct {
		method, path string
		code         int
		verb, want   string
	}{
		{"GET", "/api/v1/pods", 0, "list", "200"}, {"GET", "/api/v1/namespaces/a/pods/x", 404, "get", "404"}, {"GET", "/api/v1/pods?watch=1", 403, "watch", "403"},
		{"POST", "/api/v1/namespaces/a/pods", 201, "create", "201"}, {"PUT", "/api/v1/namespaces/a/pods/x", 409, "update", "409"},
		{"PATCH", "/api/v1/namespaces/a/pods/x", 200, "patch", "200"}, {"DELETE", "/api/v1/namespaces/a/pods/x", 200, "delete", "200"},
		{"DELETE", "/api/v1/namespaces/a/pods", 200, "deletecollection", "200"}, {"GET", "/logs/secret-token", 200, "get", "200"},
		{"SECRET-TOKEN", "/api/v1/pods", 405, "other", "405"}, {"GET", "/api/v1/namespaces/a/pods/x/exec", 101, "get", "101"},
		{"GET", "/api/v1/services", 1, "list", "502"},
	} {
		code = tc.code
		counter := s.opts.Metrics.forwarded.WithLabelValues(tc.verb, tc.want)
		before := valueOf(t, counter)
		r, err := http.NewRequestWithContext(t.Context(), tc.method, server.URL+tc.path, nil)
		require.NoError(t, err)
		if a, err := http.DefaultTransport.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, a.Body)
			_ = a.Body.Close()
		}
		require.Eventually(t, func() bool { return valueOf(t, counter) == before+1 }, time.Minute, time.Millisecond, "%+v", tc)
		require.Zero(t, valueOf(t, s.opts.Metrics.forwarding))
	}
	require.EqualValues(t, len("ok"), valueOf(t, s.opts.Metrics.bytes.WithLabelValues("list")))
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// valueOf returns the value of a counter or a gauge.
func valueOf(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	require.NoError(t, m.Write(&out))
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}
