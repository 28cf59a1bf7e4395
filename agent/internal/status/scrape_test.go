package status

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
)

// TestScrapesShare: scrapes that come at once get one answer, each in the form that it accepts, and a later
// one another.
func TestScrapesShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		var made atomic.Int64
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "made"}, func() float64 {
			time.Sleep(time.Second)
			return float64(made.Add(1))
		}))
		s := &scrapes{next: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
		ask := func(header http.Header) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header = header
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return w
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { ask(http.Header{"Accept": {"text/plain", strings.Repeat("x/y,", 10)}}) })
		}
		all.Wait()
		require.EqualValues(t, 1, made.Load())
		plain := ask(http.Header{})
		require.Equal(t, http.StatusOK, plain.Code)
		require.Contains(t, plain.Body.String(), "made 2")
		require.Contains(t, plain.Header().Get("Content-Type"), "text/plain")
		packed := ask(http.Header{"Accept-Encoding": {"deflate, gzip"}})
		require.Equal(t, "gzip", packed.Header().Get("Content-Encoding"))
		zr, err := gzip.NewReader(packed.Body)
		require.NoError(t, err)
		text, err := io.ReadAll(zr)
		require.NoError(t, err)
		require.Contains(t, string(text), "made 3")
		proto := ask(http.Header{"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}})
		require.Contains(t, proto.Header().Get("Content-Type"), "application/vnd.google.protobuf")
	})
}
