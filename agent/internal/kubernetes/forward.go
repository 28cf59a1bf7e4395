package kubernetes

import (
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/kubeapi/forward"
	"github.com/snapcache/snapcache/upstream"
)

// openForward makes the handler of requests that the cache does not answer, if it is configured.
func (a *API) openForward(opts *kubeapi.Options) (err error) {
	cfg := a.Config().KubernetesAPI.Forward
	if !cfg.Enabled {
		return nil
	}
	a.forward = forward.New(forward.Options{
		Connected: a.connected, Kubeconfigs: cfg.Kubeconfigs(), Clock: a.Clock, Log: a.Log,
	})
	opts.Forward = a.forward
	if cfg.RememberTokens {
		opts.Forward, err = a.openTokens(a.forward, opts.Metrics)
	}
	return err
}

// Reconnect forwards to the server that a cluster uses now.
func (a *API) Reconnect(cluster *upstream.Cluster) {
	if a.forward == nil {
		return
	}
	if err := a.forward.Connect(cluster.Anonymous()); err != nil {
		a.Log.Error("requests can't be forwarded", "error", err)
	}
}
