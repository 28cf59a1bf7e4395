package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// site is a server that may be gone.
type site struct {
	name  string
	gone  atomic.Bool
	busy  atomic.Bool
	asked atomic.Int64 // requests other than for its health
}

// RoundTrip implements [http.RoundTripper]. The body of a watch has no end but that of its request.
func (s *site) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/readyz") {
		s.asked.Add(1)
	}
	if s.gone.Load() {
		return nil, errors.New("connection refused")
	}
	if s.busy.Load() {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody}, nil
	}
	pr, pw := io.Pipe()
	if r.URL.Query().Has("watch") {
		context.AfterFunc(r.Context(), func() { pw.CloseWithError(r.Context().Err()) })
	} else {
		go func() {
			_, err := io.WriteString(pw, s.name+" "+r.URL.String())
			pw.CloseWithError(err)
		}()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: pr}, nil
}

// sites is a failover with two servers.
type sites struct {
	*failover
	hub, direct site
	changes     atomic.Int64
}

func runSites(t *testing.T, fn func(t *testing.T, s *sites)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &sites{hub: site{name: "hub"}, direct: site{name: "direct"}}
		s.failover = newFailover(
			endpoint{nil, &url.URL{Scheme: "https", Host: "hub:1", Path: "/behind/"}, &s.hub},
			endpoint{nil, &url.URL{Scheme: "https", Host: "direct:2", Path: "/"}, &s.direct},
			clock.RealClock{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.run(ctx, func() { s.changes.Add(1) }) }()
		fn(t, s)
		cancel()
		<-done
	})
}

// ask sends a request, and returns the body of the answer; empty for an error.
func (s *sites) ask(t *testing.T) string {
	t.Helper()
	resp, err := s.send(t.Context(), "/behind/api/v1/pods?limit=1")
	if err != nil {
		return ""
	}
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(body)
}

func (s *sites) send(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://hub:1"+path, nil)
	if err != nil {
		return nil, err
	}
	return s.RoundTrip(r)
}

// asking asks each second for d.
func (s *sites) asking(t *testing.T, d time.Duration) {
	t.Helper()
	for range int(d / time.Second) {
		s.ask(t)
		time.Sleep(time.Second)
	}
}

const (
	fromHub    = "hub https://hub:1/behind/api/v1/pods?limit=1"
	fromDirect = "direct https://direct:2/api/v1/pods?limit=1"
)

// TestFailover checks when the other server is used, and when the preferred one is used again.
func TestFailover(t *testing.T) {
	for _, tc := range []struct {
		name string
		fn   func(t *testing.T, s *sites)
	}{
		{"busy", func(t *testing.T, s *sites) {
			s.hub.busy.Store(true)
			s.asking(t, 10*failoverAfter)
			s.hub.busy.Store(false)
			require.Equal(t, fromHub, s.ask(t), "a fleet that a hub asks to wait does not go to the server behind it")
			require.Zero(t, s.direct.asked.Load())
		}},
		{"gone and back", func(t *testing.T, s *sites) {
			require.Equal(t, fromHub, s.ask(t))
			s.hub.gone.Store(true)
			s.asking(t, failoverAfter-time.Second)
			require.Empty(t, s.ask(t))
			require.Zero(t, s.direct.asked.Load())
			s.asking(t, failoverInterval*2)
			require.Equal(t, fromDirect, s.ask(t))
			s.hub.gone.Store(false)
			s.asking(t, returnAfter-2*failoverInterval)
			require.Equal(t, fromDirect, s.ask(t))
			require.Equal(t, int64(1), s.changes.Load())
			s.asking(t, returnAfter)
			require.Equal(t, fromHub, s.ask(t))
			require.Equal(t, int64(2), s.changes.Load())
		}},
		{"a short failure", func(t *testing.T, s *sites) {
			for range 20 {
				s.hub.gone.Store(true)
				s.asking(t, failoverAfter/2)
				s.hub.gone.Store(false)
				require.Equal(t, fromHub, s.ask(t))
			}
			require.Zero(t, s.direct.asked.Load())
		}},
		{"no link at all", func(t *testing.T, s *sites) {
			s.hub.gone.Store(true)
			s.direct.gone.Store(true)
			s.asking(t, 10*time.Minute)
			s.direct.gone.Store(false)
			s.hub.gone.Store(false)
			s.asking(t, 10*time.Minute)
			require.Zero(t, s.direct.asked.Load())
		}},
		{"the link is back, and nothing is asked", func(t *testing.T, s *sites) {
			s.hub.gone.Store(true)
			s.direct.gone.Store(true)
			s.asking(t, time.Minute)
			s.direct.gone.Store(false)
			s.hub.gone.Store(false)
			time.Sleep(time.Minute)
			require.Equal(t, fromHub, s.ask(t))
		}},
		{"the link is back before the hub", func(t *testing.T, s *sites) {
			s.hub.gone.Store(true)
			s.direct.gone.Store(true)
			s.asking(t, 10*time.Minute)
			s.direct.gone.Store(false)
			s.asking(t, 2*failoverInterval)
			require.Equal(t, fromDirect, s.ask(t))
		}},
		{"no request fails while its caller cancels", func(t *testing.T, s *sites) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			s.hub.gone.Store(true)
			for range 60 {
				_, err := s.send(ctx, "/behind/api") //nolint:bodyclose // there is none
				require.Error(t, err)
				time.Sleep(time.Second)
			}
			s.hub.gone.Store(false)
			require.Equal(t, fromHub, s.ask(t))
			require.Zero(t, s.direct.asked.Load())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { runSites(t, tc.fn) })
	}
}

// TestFailoverHysteresis checks that a hub that fails again and again is left alone for longer and longer.
func TestFailoverHysteresis(t *testing.T) {
	runSites(t, func(t *testing.T, s *sites) {
		var waits []time.Duration
		for range 5 {
			s.hub.gone.Store(true)
			for s.ask(t) != fromDirect {
				time.Sleep(time.Second)
			}
			s.hub.gone.Store(false)
			began := time.Now()
			for s.ask(t) != fromHub {
				time.Sleep(time.Second)
			}
			waits = append(waits, time.Since(began))
		}
		require.Less(t, waits[0], 2*returnAfter)
		for i, want := range []time.Duration{1, 2, 4, 8, 15} {
			require.GreaterOrEqual(t, waits[i], want*returnAfter-failoverInterval, waits)
		}
	})
}

// TestFailoverEndsWatches checks that a watch ends with the use of its server, that a list does not, and
// that nothing is kept of a watch that has ended.
func TestFailoverEndsWatches(t *testing.T) {
	runSites(t, func(t *testing.T, s *sites) {
		watch, err := s.send(t.Context(), "/behind/api/v1/pods?watch=true")
		require.NoError(t, err)
		list, err := s.send(t.Context(), "/behind/api/v1/pods")
		require.NoError(t, err)
		s.use(s.other)
		_, err = watch.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, watch.Body.Close())
		body, err := io.ReadAll(list.Body)
		require.NoError(t, err)
		require.Equal(t, "hub https://hub:1/behind/api/v1/pods", string(body))
		require.NoError(t, list.Body.Close())
	})
}

// TestFailoverAnonymous checks that others connect to the server in use, without its credentials.
func TestFailoverAnonymous(t *testing.T) {
	c, err := NewLinked(&rest.Config{Host: "https://hub:1/behind", BearerToken: "a"}, &rest.Config{Host: "https://direct:2", BearerToken: "b"}, clock.RealClock{}, slog.New(slog.DiscardHandler), func() {})
	require.NoError(t, err)
	for _, want := range []string{"https://hub:1/behind", "https://direct:2"} {
		got := c.Anonymous()
		require.Equal(t, want, got.Host)
		require.Equal(t, want, c.Server())
		require.Empty(t, got.BearerToken)
		c.failover.use(c.failover.other)
	}
}
