package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Cluster is the connection to one cluster's kube-apiserver. Its sources share one HTTP/2
// connection. It is safe for concurrent use.
type Cluster struct {
	cfg       *rest.Config
	base      *url.URL
	transport http.RoundTripper
	client    *rest.RESTClient

	mu        sync.Mutex
	suggested map[schema.GroupResource][]string // see suggest
}

// New returns a Cluster for cfg, which it copies. It sends no request.
//
// cfg.Timeout is not used: it would cut watches, and lists on slow links. The contexts of the calls
// bound them, and HTTP/2 health checks find dead connections. cfg.QPS is not used either, as in
// [LoadConfig].
func New(cfg *rest.Config) (*Cluster, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout, cfg.QPS = 0, -1
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, configError("", fmt.Sprintf("the server's address %q can't be used: %v", redact(cfg.Host), err), "correct server in the kubeconfig")
	}
	rt, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, configError("", fmt.Sprintf("the TLS settings or credentials can't be used: %v", err), "correct the kubeconfig")
	}
	c := &Cluster{cfg: cfg, base: base, transport: rt, suggested: make(map[schema.GroupResource][]string)}
	if c.client, err = c.restClient(schema.GroupVersion{Version: "v1"}, rt, decoding{}); err != nil {
		return nil, fmt.Errorf("client for %s: %w", base.Host, err)
	}
	return c, nil
}

// Server returns the server's address, without credentials.
func (c *Cluster) Server() string { return c.base.Redacted() }

// Close closes the idle connections. Callers end their own lists and watches.
func (c *Cluster) Close() { utilnet.CloseIdleConnectionsFor(c.transport) }

// restClient returns a client for one version of a group. It decodes with d and sends through rt.
func (c *Cluster) restClient(gv schema.GroupVersion, rt http.RoundTripper, d decoding) (*rest.RESTClient, error) {
	cfg := rest.CopyConfig(c.cfg)
	cfg.ContentConfig = rest.ContentConfig{
		AcceptContentTypes:   runtime.ContentTypeJSON,
		ContentType:          runtime.ContentTypeJSON,
		GroupVersion:         &gv,
		NegotiatedSerializer: newSerializer(d),
	}
	cfg.APIPath = "/" + apiPath(gv)[0]
	return rest.RESTClientForConfigAndClient(cfg, &http.Client{Transport: rt})
}

// get returns the body of a small answer. If the server answered with an API error, get returns
// that error.
func (c *Cluster) get(ctx context.Context, accept string, path ...string) ([]byte, error) {
	res := c.client.Get().AbsPath(path...).SetHeader("Accept", accept).MaxRetries(0).Do(ctx)
	if err := res.Error(); err != nil {
		return nil, err
	}
	return res.Raw()
}
