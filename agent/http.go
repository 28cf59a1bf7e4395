package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof" //nolint:gosec // registers itself with a mux that is not served
	"os"
	"time"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/localapi/statuspage"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/systemd"
)

// handler returns the handler of the socket: the cache, the status page and its pages of the objects,
// comparisons with the server, snapshots, reloads, health, metrics and profiles.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", localapi.Handler(a.source))
	kube := a.kube.Local()
	for _, path := range []string{"/api", "/api/", "/apis", "/apis/", "/openapi/", "/version"} {
		mux.Handle(path, kube)
	}
	page := a.statusPage(false)
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /events", page)
	mux.Handle("GET /browse/", page)
	mux.Handle(localapi.VerifyPattern, localapi.VerifyHandler(a.verifier.Verify))
	mux.Handle("GET /metrics", a.status.Metrics())
	a.status.HealthHandlers(mux)
	// The profiles may contain cached data.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.Handle(localapi.ReloadPattern, localapi.ReloadHandler(a.reload))
	if a.snapshots != nil {
		mux.Handle(localapi.SnapshotPattern, localapi.SnapshotHandler(func(ctx context.Context, progress func(string, int64, int64)) (*localapi.Snapshot, error) {
			x, err := a.snapshots.Create(ctx, func(step snapshot.Step, done, total int64) { progress(string(step), done, total) })
			if err != nil {
				return nil, err
			}
			return &localapi.Snapshot{Name: x.Name, Path: x.Path, Bytes: x.Bytes, Objects: x.Manifest.Objects(), Created: x.Manifest.Created}, nil
		}))
	}
	// A tunnel from another machine may end at the socket, with a browser at its other end.
	return statuspage.LocalHost(http.NewCrossOriginProtection().Handler(mux))
}

// metricsHandler returns the handler of metrics.address. It serves /metrics, /livez, /readyz and the
// bare status page, which every user of this machine may read.
func (a *Agent) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.status.Metrics())
	a.status.HealthHandlers(mux)
	// The bare page shows nothing that the metrics do not have.
	page := statuspage.LocalHost(a.statusPage(true))
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /events", page)
	node, _ := os.Hostname() // if it fails, it is no name of the metrics
	configured, _, _ := net.SplitHostPort(a.config().Metrics.Address)
	return serving.DiscardBody(statuspage.KnownHost(mux, node, configured))
}

// statusPage returns the status page; the bare one is for every user of this machine.
func (a *Agent) statusPage(bare bool) http.Handler {
	node, _ := os.Hostname() // if it fails, the page shows no name
	return statuspage.Handler(statuspage.Options{Source: a.source, Table: a.kube.Table, Node: node, Bare: bare, Done: a.stopping})
}

// listen returns the socket that systemd passed, or else opens localAPI.socket.
func (a *Agent) listen() (net.Listener, error) {
	path := a.config().LocalAPI.Socket
	if a.opts.socket == nil {
		return files.ListenUnix(path)
	}
	given, err := systemd.Listen(a.opts.socket)
	if err != nil {
		return nil, &UsageError{err}
	}
	if address := given.Addr().String(); address != path {
		a.log.Warn("systemd passed a socket other than localAPI.socket; serving on systemd's", "socket", address, "localAPI.socket", path)
	}
	return given, nil
}

// Limits of the listeners besides the Kubernetes API's.
const (
	// maxLocal limits the connections of the socket, each of which has at most one request, and maxLocalBody
	// the bodies of the requests there, in bytes: they are forms.
	maxLocal     = 256
	maxLocalBody = 64 << 10

	// maxScrapes limits the connections of metrics.address, which needs no credentials.
	maxScrapes = 256

	// scrapeTimeout limits the time of an answer there. The events of the status page renew it.
	scrapeTimeout = 10 * time.Second
)

// serveLocal returns a function that serves the socket until ctx ends.
func (a *Agent) serveLocal(l net.Listener) func(context.Context) error {
	server := serving.NewPlainServer(http.MaxBytesHandler(a.handler(), maxLocalBody), a.log)
	server.WriteTimeout = localapi.WriteLimit
	return serveOn(serving.Limit(l, serving.Connections{Max: maxLocal}), server)
}

// serveMetrics returns a function that serves the listener of metrics.address until ctx ends.
func (a *Agent) serveMetrics(l net.Listener) func(context.Context) error {
	server := serving.NewPlainServer(a.metricsHandler(), a.log)
	server.WriteTimeout = scrapeTimeout
	return serveOn(serving.Limit(l, serving.Connections{Max: maxScrapes}), server)
}

// serveOn returns a function that serves l by srv until ctx ends. Requests in progress then have two
// seconds to finish.
func serveOn(l net.Listener, srv *http.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		done := make(chan error, 1)
		go func() { done <- srv.Serve(l) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := srv.Shutdown(grace); err != nil {
			_ = srv.Close() // a client that does not read is cut off
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}
