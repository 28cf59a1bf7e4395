package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/kubeapi/documents"
	"github.com/snapcache/snapcache/kubeapi/forward"
	"github.com/snapcache/snapcache/kubeapi/tokens"
	"github.com/snapcache/snapcache/upstream"
)

// openForward makes the handler of requests that the cache does not answer, if it is configured.
func (a *API) openForward(opts *kubeapi.Options) (err error) {
	cfg := a.opts.Config().KubernetesAPI.Forward
	if !cfg.Enabled {
		return nil
	}
	a.forward = forward.New(forward.Options{
		Connected: a.reaches, Await: a.await, Kubeconfigs: cfg.Kubeconfigs(), Clock: a.opts.Clock, Log: a.opts.Log,
	})
	opts.Forward = a.forward
	kept, bad := documents.Open(filepath.Join(a.opts.dir(), "discovery.json"), a.opts.Clock)
	if bad != nil {
		a.opts.Log.Warn("the resources that the server has are not known until it can be asked", "error", bad)
	}
	a.documents, opts.Documents = kept, kept
	if cfg.RememberTokens {
		opts.Forward, err = a.openTokens(a.forward, opts.Metrics)
	}
	return err
}

// reaches reports whether a request may be forwarded: one of the collections follows the server.
func (a *API) reaches() bool {
	return slices.ContainsFunc(a.opts.All(), (*collection.Collection).Reaches)
}

// await is [upstream.Link.Await]. A request is only forwarded if the server has been connected to.
func (a *API) await(ctx context.Context, grace time.Duration) (context.Context, func(error)) {
	return a.access.cluster.Load().Link().Await(ctx, grace)
}

// keepDocuments keeps the server's discovery documents current until ctx ends.
func (a *API) keepDocuments(ctx context.Context, cluster *upstream.Cluster) {
	sleep.Daily(ctx, a.opts.Clock, a.opts.Log, 0, a.documents.Asked(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		return upstream.Explain(a.documents.Refresh(ctx, cluster.DiscoveryDocument))
	})
}

// Reconnect forwards to the server that a cluster uses now.
func (a *API) Reconnect(cluster *upstream.Cluster) {
	if a.forward == nil {
		return
	}
	sessions := cluster.Anonymous()
	sessions.Dial = nil
	if err := a.forward.Connect(cluster.Anonymous(), sessions); err != nil {
		a.opts.Log.Error("requests can't be forwarded", "error", err)
	}
}

func (a *API) tokensFile() string { return filepath.Join(a.opts.dir(), "tokens.db") }

// openTokens returns a Forwarder that remembers the tokens in the answers of next.
func (a *API) openTokens(next kubeapi.Forwarder, m *kubeapi.Metrics) (kubeapi.Forwarder, error) {
	db, err := a.opts.OpenStore(a.tokensFile())
	if err != nil {
		return nil, fmt.Errorf("remembered tokens: %w", err)
	}
	remembered, err := tokens.Open(db, a.opts.Log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("remembered tokens: %s: %w", a.tokensFile(), err), db.Close())
	}
	a.tokens = db
	return forwarder{next, &tokens.Handler{
		Next: next, Store: remembered, Lookup: a.access.lookup, Clock: a.opts.Clock, Log: a.opts.Log, Repeated: m.Repeated,
	}}, nil
}

// forwarder is a Forwarder with another handler around it.
type forwarder struct {
	kubeapi.Forwarder
	handler http.Handler
}

func (f forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.handler.ServeHTTP(w, r) }
