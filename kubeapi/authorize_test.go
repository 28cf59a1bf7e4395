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

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/access"
)

// text returns what is asked in one line.
func text(ask access.Request) string {
	if n := ask.NonResource; n != nil {
		return n.Verb + " " + n.Path
	}
	a := ask.Resource
	s := strings.Join([]string{a.Verb, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace, a.Name}, ",")
	if a.FieldSelector != nil {
		s += " fields " + a.FieldSelector.RawSelector
	}
	if a.LabelSelector != nil {
		s += " labels " + a.LabelSelector.RawSelector
	}
	return s
}

// TestAuthorizedRequests: what is authorized is what would be answered, in the terms of a
// kube-apiserver, however the path is written. Only health is for everybody.
func TestAuthorizedRequests(t *testing.T) {
	w := newWorld(t, "")
	w.start()
	t.Cleanup(w.close)
	var asked []string
	w.server.opts.Authorize = func(_ context.Context, ask access.Request) error {
		asked = append(asked, text(ask))
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	}
	forbidden := w.server.opts.Metrics.refused.WithLabelValues(string(RefusedForbidden))
	w.server.opts.OpenAPI = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { t.Error("OpenAPI") })
	w.server.opts.Scrape = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { t.Error("metrics") })
	for _, tc := range []struct{ method, path, want string }{
		{"GET", "/api/v1/pods", "list,,v1,pods,,,"},
		{"GET", "/api/v1/pods/", "list,,v1,pods,,,"},
		{"HEAD", "/api/v1/pods", "list,,v1,pods,,,"},
		{"GET", "//api/v1/pods", "list,,v1,pods,,,"},
		{"GET", "/%61pi/v1/pods", "list,,v1,pods,,,"},
		{"GET", "/api/v1/namespaces/a%2Fpods", "list,,v1,pods,,a,"},
		{"GET", "/api/v1/namespaces/a/../b/pods", "get,,v1,..,pods,a,b"},
		{"GET", "/api/v1//pods", "get /api/v1//pods"},
		{"GET", "/api/v1/pods?watch", "watch,,v1,pods,,,"},
		{"GET", "/api/v1/pods?watch=false", "list,,v1,pods,,,"},
		{"GET", "/api/v1/pods?watch=0&watch=1", "list,,v1,pods,,,"},
		{"GET", "/api/v1/watch/pods", "watch,,v1,pods,,,"},
		{"GET", "/api/v1/watch/namespaces/a/pods/x", "watch,,v1,pods,,a,x"},
		{"GET", "/api/v1/namespaces/a/pods", "list,,v1,pods,,a,"},
		{"GET", "/api/v1/namespaces/a/pods/x", "get,,v1,pods,,a,x"},
		{"GET", "/api/v1/namespaces/a/pods/x?watch=1", "get,,v1,pods,,a,x"},
		{"GET", "/api/v1/namespaces/a/pods/x/status", "get,,v1,pods,status,a,x"},
		{"GET", "/api/v1/namespaces/a/pods/x/log", "get,,v1,pods,log,a,x"},
		{"GET", "/api/v1/namespaces/a", "get,,v1,namespaces,,a,a"},
		{"GET", "/api/v1/namespaces/a/status", "get,,v1,namespaces,status,a,a"},
		{"GET", "/api/v1/namespaces", "list,,v1,namespaces,,,"},
		{"GET", "/apis/apps/v1/namespaces/a/deployments", "list,apps,v1,deployments,,a,"},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list,,v1,pods,,,x fields metadata.name=x"},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3D..", "list,,v1,pods,,, fields metadata.name=.."},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%21%3Dx", "list,,v1,pods,,, fields metadata.name!=x"},
		{"GET", "/api/v1/pods?watch=1&labelSelector=a%3Db&fieldSelector=spec.nodeName%3Dn", "watch,,v1,pods,,, fields spec.nodeName=n labels a=b"},
		{"GET", "/api/v1/pods?watch=1&labelSelector=a%3Db&fieldSelector=metadata.name%3D" + strings.Repeat("n", 20_000), "watch,,v1,pods,,,"},
		{"GET", "/api/v1/namespaces/a/pods/x?fieldSelector=metadata.name%3Dy", "get,,v1,pods,,a,x"},
		{"POST", "/api/v1/namespaces/a/pods", "create,,v1,pods,,a,"},
		{"POST", "/api/v1/namespaces/a/pods/x/exec", "create,,v1,pods,exec,a,x"},
		{"PUT", "/api/v1/namespaces/a/pods/x", "update,,v1,pods,,a,x"},
		{"PATCH", "/api/v1/namespaces/a/pods/x", "patch,,v1,pods,,a,x"},
		{"DELETE", "/api/v1/namespaces/a/pods/x", "delete,,v1,pods,,a,x"},
		{"DELETE", "/api/v1/namespaces/a/pods", "deletecollection,,v1,pods,,a,"},
		{"GET", "/api", "get /api"},
		{"GET", "/api/v1", "get /api/v1"},
		{"GET", "/apis/apps/v1", "get /apis/apps/v1"},
		{"GET", "/version", "get /version"},
		{"GET", "/version/", "get /version/"},
		{"GET", "/openapi/v3", "get /openapi/v3"},
		{"GET", "/openapi/v3/api/v1", "get /openapi/v3/api/v1"},
		{"GET", "/metrics", "get /metrics"},
		{"GET", "/healthz", ""},
		{"GET", "/readyz", ""},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			asked = nil
			before := valueOf(t, forbidden)
			answer := httptest.NewRecorder()
			w.server.ServeHTTP(answer, httptest.NewRequest(tc.method, tc.path, nil))
			counted := valueOf(t, forbidden) - before
			if tc.want == "" {
				require.Empty(t, asked)
				require.Equal(t, http.StatusOK, answer.Code)
				require.Zero(t, counted)
				return
			}
			require.Equal(t, []string{tc.want}, asked)
			require.Equal(t, http.StatusForbidden, answer.Code)
			require.InDelta(t, 1, counted, 0)
		})
	}
}

// TestAuthorizeTooManyRequests: a caller about which too many questions wait is asked to come again,
// which is no refusal of a right.
func TestAuthorizeTooManyRequests(t *testing.T) {
	w := newWorld(t, "")
	w.start()
	t.Cleanup(w.close)
	w.server.opts.Authorize = func(context.Context, access.Request) error {
		return apierrors.NewTooManyRequests(access.ErrBusy.Error(), 1)
	}
	answer := httptest.NewRecorder()
	w.server.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
	require.Equal(t, http.StatusTooManyRequests, answer.Code)
	require.Equal(t, "1", answer.Header().Get("Retry-After"))
	for why, want := range map[Refusal]float64{RefusedForbidden: 0, RefusedRequests: 1} {
		require.InDelta(t, want, valueOf(t, w.server.opts.Metrics.refused.WithLabelValues(string(why))), 0, why)
	}
}

// TestMetricsAreNotForwarded checks that the metrics are the agent's own, also if other paths are
// forwarded.
func TestMetricsAreNotForwarded(t *testing.T) {
	w := newWorld(t, "")
	w.start()
	t.Cleanup(w.close)
	text := func(s string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) })
	}
	w.server.opts.Scrape, w.server.opts.Forward = text("metrics"), everything{text("forwarded")}
	h := w.server.WithBodies(w.server)
	for _, tc := range []struct{ method, path, want string }{
		{"GET", "/metrics", "metrics"},
		{"POST", "/metrics", "forwarded"},
		{"GET", "/metrics/slis", "forwarded"},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, httptest.NewRequest(tc.method, tc.path, nil))
			require.Equal(t, tc.want, answer.Body.String())
		})
	}
}

// everything is a Forwarder that takes all requests.
type everything struct{ http.Handler }

func (everything) Takes(*http.Request) bool   { return true }
func (everything) Reaches(*http.Request) bool { return true }

func (e everything) OrElse(http.Handler) http.Handler { return e }

// TestWatchRightWithdrawn: a watch ends soon after its caller lost the right to it, and another one's
// goes on.
func TestWatchRightWithdrawn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var refused atomic.Bool
		w.server.opts.Authorize = func(ctx context.Context, ask access.Request) error {
			if ask.Continues && refused.Load() && ask.Resource.Namespace == "a" {
				return errors.New("no")
			}
			return nil
		}
		a := watch(t, w.server, false, "/api/v1/namespaces/a/pods?watch=1&resourceVersion=12")
		b := watch(t, w.server, false, "/api/v1/namespaces/b/pods?watch=1&resourceVersion=12")
		defer a.close()
		defer b.close()
		time.Sleep(10 * time.Minute)
		w.change("a/x", "web", "n1")
		require.Equal(t, []string{"MODIFIED a/x@13"}, a.texts())
		refused.Store(true)
		time.Sleep(access.RecheckInterval + time.Second)
		synctest.Wait()
		w.change("a/x", "web", "n2")
		w.change("b/x", "web", "n2")
		synctest.Wait()
		require.True(t, a.ended())
		require.Empty(t, a.texts())
		require.Equal(t, []string{"MODIFIED b/x@15"}, b.texts())
	})
}
