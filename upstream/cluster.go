package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/clock"
)

// Cluster is the connection to one cluster's kube-apiserver. Its sources share one HTTP/2
// connection. It is safe for concurrent use.
type Cluster struct {
	endpoint // the preferred server's; with two servers, the transport sends to the one in use
	client   *rest.RESTClient
	failover *failover // nil for a cluster with one server
	link     *Link
	seed     *Cluster // see SeedFrom; nil for none

	mu        sync.Mutex
	suggested map[schema.GroupResource][]string // see suggest
}

// New returns a Cluster for cfg, which it copies. It sends no request.
//
// cfg.Timeout is not used: it would cut watches, and lists on slow links. The contexts of the calls
// bound them, HTTP/2 health checks find dead connections, and a request that the server sends nothing of
// an answer to for 90 s fails. cfg.QPS is not used either, as in [LoadConfig].
func New(cfg *rest.Config) (*Cluster, error) {
	link := newLink(clock.RealClock{})
	e, err := newEndpoint(cfg, link)
	if err != nil {
		return nil, err
	}
	return newCluster(e, nil, link)
}

// NewLinked returns a Cluster that mends its link: connections that lead nowhere are closed, see [Link], and back is
// called when the server answers after that. If other is not nil, it has two servers of one cluster: requests go to the
// preferred one, and to the other while that is gone, as [Cluster.Run] decides. Otherwise it is as [New].
func NewLinked(preferred, other *rest.Config, c clock.Clock, log *slog.Logger, back func()) (*Cluster, error) {
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext) // client-go's
	link := newLink(clock.RealClock{})
	link.lost, link.back, link.log = dialer.CloseAll, back, log
	endpointOf := func(cfg *rest.Config) (endpoint, error) {
		cfg = rest.CopyConfig(cfg)
		cfg.Dial = dialer.DialContext
		return newEndpoint(cfg, link)
	}
	first, err := endpointOf(preferred)
	if err != nil {
		return nil, err
	}
	if other == nil {
		return newCluster(first, nil, link)
	}
	second, err := endpointOf(other)
	if err != nil {
		return nil, err
	}
	return newCluster(first, newFailover(first, second, c, log), link)
}

// newEndpoint returns the endpoint of a copy of cfg, without its timeout and rate limit.
func newEndpoint(cfg *rest.Config, link *Link) (endpoint, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout, cfg.QPS = 0, -1
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return endpoint{}, configError("", fmt.Sprintf("the server's address %q can't be used: %v", redact(cfg.Host), err), "correct server in the kubeconfig")
	}
	rt, err := rest.TransportFor(cfg)
	if err != nil {
		return endpoint{}, configError("", fmt.Sprintf("the TLS settings or credentials can't be used: %v", err), "correct the kubeconfig")
	}
	return endpoint{cfg, base, impatient{rt, link}}, nil
}

func newCluster(e endpoint, f *failover, link *Link) (*Cluster, error) {
	c := &Cluster{endpoint: e, failover: f, link: link, suggested: make(map[schema.GroupResource][]string)}
	if f != nil {
		c.transport = f
	}
	var err error
	if c.client, err = c.restClient(schema.GroupVersion{Version: "v1"}, c.transport, false); err != nil {
		return nil, fmt.Errorf("client for %s: %w", e.base.Host, err)
	}
	link.probe = func(ctx context.Context) error {
		_, err := c.get(ctx, runtime.ContentTypeJSON, "version") // which every user may read
		return err
	}
	return c, nil
}

// Link returns the link to the server.
func (c *Cluster) Link() *Link { return c.link }

// Run decides until ctx ends which of two servers is used, and calls changed after each change. It
// returns at once if there is one.
func (c *Cluster) Run(ctx context.Context, changed func()) {
	if c.failover != nil {
		c.failover.run(ctx, changed)
	}
}

// using returns the server in use.
func (c *Cluster) using() endpoint {
	if c.failover != nil {
		return c.failover.current()
	}
	return c.endpoint
}

// Server returns the address of the server in use, without credentials.
func (c *Cluster) Server() string { return c.using().base.Redacted() }

// Anonymous returns a configuration for connections of others to the server in use: with its address and
// authorities, and without the credentials of this connection.
func (c *Cluster) Anonymous() *rest.Config {
	e := c.using()
	base := *e.base
	base.User = nil
	cfg := rest.AnonymousClientConfig(e.cfg)
	cfg.Host, cfg.UserAgent = base.String(), ""
	return cfg
}

// FellBack reports whether the server in use is the other one of two.
func (c *Cluster) FellBack() bool {
	return c.failover != nil && c.failover.current() != c.failover.preferred
}

// Close closes the idle connections, and ends the link's probes. Callers end their own lists and watches.
func (c *Cluster) Close() {
	c.link.close()
	utilnet.CloseIdleConnectionsFor(c.transport)
	if c.seed != nil {
		c.seed.Close()
	}
}

// acceptProtobuf asks for protobuf, and accepts JSON from servers that don't have it.
const acceptProtobuf = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

// restClient returns a client for one version of a group, which sends through rt. It asks for
// protobuf, if set, or else for JSON.
func (c *Cluster) restClient(gv schema.GroupVersion, rt http.RoundTripper, protobuf bool) (*rest.RESTClient, error) {
	cfg := rest.CopyConfig(c.cfg)
	cfg.ContentConfig = rest.ContentConfig{
		AcceptContentTypes:   runtime.ContentTypeJSON,
		ContentType:          runtime.ContentTypeJSON,
		GroupVersion:         &gv,
		NegotiatedSerializer: metascheme.Codecs.WithoutConversion(), // for error answers: a Status in JSON or protobuf
	}
	if protobuf {
		cfg.AcceptContentTypes = acceptProtobuf
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

// acceptMetadata asks for the metadata of one object, and accepts the whole object from servers
// that can't omit the rest.
const acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// Identity returns the identity of the cluster: "uid:" and the UID of the namespace kube-system. If
// the server forbids that read (403) or has no such namespace (404), it is "ca:" and a digest of
// the CA and of the server's host and port. Identity fails if the server does not serve namespaces, such
// as an agent that does not cache them. The two forms can't be compared: after a change of permissions
// one cluster may answer with the other form. Every other failure is an error, never another identity.
func (c *Cluster) Identity(ctx context.Context) (string, error) {
	body, err := c.get(ctx, acceptMetadata, "api", "v1", "namespaces", "kube-system")
	if apierrors.IsForbidden(err) || isNoNamespace(err) {
		return c.caIdentity()
	}
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("identity of the cluster: %w: an agent that is asked for it has to cache namespaces, or to forward", err)
	}
	if err != nil {
		return "", fmt.Errorf("identity of the cluster: %w", err)
	}
	uid := gjson.GetBytes(body, "metadata.uid")
	if uid.Type != gjson.String || uid.Str == "" {
		return "", errors.New("identity of the cluster: the server's answer has no UID for the namespace kube-system: " + hintNotKubernetes)
	}
	return "uid:" + uid.Str, nil
}

// isNoNamespace reports whether err is the 404 of a namespace, and not of a path.
func isNoNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == metav1.NamespaceSystem
}

func (c *Cluster) caIdentity() (string, error) {
	ca := c.cfg.CAData
	if len(ca) == 0 && c.cfg.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(c.cfg.CAFile); err != nil {
			return "", fmt.Errorf("identity of the cluster: read its CA: %w", err)
		}
	}
	h := sha256.New()
	h.Write(ca)
	h.Write([]byte(c.base.Host))
	return "ca:" + hex.EncodeToString(h.Sum(nil)), nil
}

// ServerVersion returns the server's /version document, as it was sent: a JSON object with gitVersion.
func (c *Cluster) ServerVersion(ctx context.Context) ([]byte, error) {
	body, err := c.get(ctx, runtime.ContentTypeJSON, "version")
	if err != nil {
		return nil, fmt.Errorf("version of the server: %w", err)
	}
	if !gjson.ValidBytes(body) || gjson.GetBytes(body, "gitVersion").Str == "" {
		return nil, errors.New("version of the server: the answer has no gitVersion: " + hintNotKubernetes)
	}
	return body, nil
}

// OpenAPI returns a document of the server's OpenAPI v3: its index at "/openapi/v3", or a document
// that the index refers to by path and hash. The caller closes the body, which may be some megabytes
// long.
func (c *Cluster) OpenAPI(ctx context.Context, relativeURL string) (io.ReadCloser, error) {
	u, err := url.Parse(relativeURL)
	if err != nil {
		return nil, fmt.Errorf("get OpenAPI: %w", err)
	}
	// The server may be behind a path of a proxy, which not every proxy adds to the index.
	r := c.client.Get().AbsPath(strings.TrimPrefix(u.Path, strings.TrimSuffix(c.base.Path, "/")+"/")).
		SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0)
	for name, values := range u.Query() {
		for _, value := range values {
			r.Param(name, value)
		}
	}
	body, err := r.Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("get OpenAPI %s: %w", u.Path, err)
	}
	return body, nil
}
