package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
)

const (
	// failoverInterval is the time between two looks at the server in use.
	failoverInterval = 10 * time.Second

	// failoverAfter is how long requests to the preferred server must have failed, all of them.
	failoverAfter = 30 * time.Second

	// returnAfter is how long the preferred server must have answered before it is used again. The
	// time doubles, up to maxReturnAfter, each time it fails within a steadyAfter of the return.
	returnAfter    = 2 * time.Minute
	maxReturnAfter = 30 * time.Minute
	steadyAfter    = 30 * time.Minute

	// healthTimeout limits the question for a server's health.
	healthTimeout = 10 * time.Second
)

// endpoint is a server of the cluster, with the transport that authenticates to it.
type endpoint struct {
	cfg       *rest.Config
	base      *url.URL
	transport http.RoundTripper
}

// failover is a transport that sends requests to the preferred one of two servers of a cluster, and
// to the other while that is gone. It is safe for concurrent use.
type failover struct {
	preferred, other endpoint
	clock            clock.Clock
	log              *slog.Logger

	mu      sync.Mutex
	using   endpoint
	watches context.Context // ends when using changes
	end     context.CancelFunc
	failing time.Time // since when all requests to using have failed; unset if they don't
}

func newFailover(preferred, other endpoint, c clock.Clock, log *slog.Logger) *failover {
	f := &failover{preferred: preferred, other: other, clock: c, log: log}
	f.use(preferred)
	return f
}

// RoundTrip implements [http.RoundTripper]. The request must be one for the preferred server.
func (f *failover) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	using, watches := f.using, f.watches
	f.mu.Unlock()
	if r.URL.Query().Get("watch") == "true" {
		return f.watch(r, using, watches)
	}
	resp, err := using.transport.RoundTrip(using.request(r.Context(), f.preferred.base, r))
	f.note(r, using, resp, err)
	return resp, err
}

// watch sends a request for a watch, and ends the answer with watches: the server that is used then
// goes on at the resourceVersion that this one has reached.
func (f *failover) watch(r *http.Request, using endpoint, watches context.Context) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(watches, cancel)
	release := func() { stop(); cancel() }
	resp, err := using.transport.RoundTrip(using.request(ctx, f.preferred.base, r))
	f.note(r, using, resp, err)
	if err != nil {
		release()
		return nil, err
	}
	resp.Body = &watchBody{resp.Body, release}
	return resp, nil
}

// request returns r, which is for the server at base, for the endpoint.
func (e endpoint) request(ctx context.Context, base *url.URL, r *http.Request) *http.Request {
	out := r.Clone(ctx)
	out.Host, out.URL.Scheme, out.URL.Host = "", e.base.Scheme, e.base.Host
	out.URL.Path = strings.TrimSuffix(e.base.Path, "/") + "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, base.Path), "/")
	return out
}

// isUnavailable reports whether an answer is one of a proxy whose server is gone.
func isUnavailable(code int) bool {
	return code == http.StatusBadGateway || code == http.StatusServiceUnavailable
}

// note records the outcome of a request.
func (f *failover) note(r *http.Request, to endpoint, resp *http.Response, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		return // by the caller
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case to != f.using:
	case err == nil && !isUnavailable(resp.StatusCode):
		f.failing = time.Time{}
	case f.failing.IsZero():
		f.failing = f.clock.Now()
	}
}

// use makes an endpoint the one in use, and ends the watches of the one before.
func (f *failover) use(e endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end != nil {
		f.end()
	}
	f.using, f.failing = e, time.Time{}
	f.watches, f.end = context.WithCancel(context.Background())
}

func (f *failover) current() endpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.using
}

// failed reports whether the requests to the endpoint in use have failed for long.
func (f *failover) failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.failing.IsZero() && f.clock.Since(f.failing) >= failoverAfter
}

// run changes the endpoint in use until ctx ends, and calls changed after each change. The preferred one is left only for another that
// answers: after an outage of the network a fleet comes back to its hub.
func (f *failover) run(ctx context.Context, changed func()) {
	var returned time.Time // when the preferred endpoint was used again; unset for never
	after := returnAfter
	for {
		for !f.failed() || f.healthy(ctx, f.preferred) || !f.healthy(ctx, f.other) {
			if f.pause(ctx) != nil {
				return
			}
		}
		if !returned.IsZero() && f.clock.Since(returned) < steadyAfter {
			after = min(2*after, maxReturnAfter)
		} else {
			after = returnAfter
		}
		f.log.Warn("the server is gone: another one is used until it is back", "server", f.preferred.base.Redacted(), "other", f.other.base.Redacted())
		f.use(f.other)
		changed()

		steady := wait.Jitter(after, 0.5) // spreads the return of a fleet
		for since := f.clock.Now(); f.clock.Since(since) < steady; {
			if f.pause(ctx) != nil {
				return
			}
			if !f.healthy(ctx, f.preferred) {
				since = f.clock.Now()
			}
		}
		f.log.Info("the server is back, and is used again", "server", f.preferred.base.Redacted())
		f.use(f.preferred)
		changed()
		returned = f.clock.Now()
	}
}

func (f *failover) pause(ctx context.Context) error {
	sleep.Retry(ctx, f.clock, wait.Jitter(failoverInterval, 0.2), nil)
	return ctx.Err()
}

// healthy reports whether an endpoint is ready. Every user may ask for that, and a server that refuses
// the question is there.
func (f *failover) healthy(ctx context.Context, e endpoint) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base.JoinPath("readyz").String(), nil)
	if err != nil {
		return false
	}
	resp, err := e.transport.RoundTrip(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode < http.StatusInternalServerError
}

// CloseIdleConnections implements the interface of [http.Client] for that.
func (f *failover) CloseIdleConnections() {
	for _, e := range []endpoint{f.preferred, f.other} {
		utilnet.CloseIdleConnectionsFor(e.transport)
	}
}

// watchBody is the body of a watch, which releases the context of its request when it is closed.
type watchBody struct {
	io.ReadCloser
	release func()
}

func (b *watchBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
