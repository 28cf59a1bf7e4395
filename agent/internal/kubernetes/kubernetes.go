// Package kubernetes is the agent's Kubernetes API: which collections are served, where it listens, and
// the cluster's CA, keys and decisions that it stores.
package kubernetes

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/kubeapi/documents"
	"github.com/snapcache/snapcache/kubeapi/forward"
	"github.com/snapcache/snapcache/kubeapi/openapi"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/kubeapi/signed"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// Options are the settings of an API. Scrape is optional.
type Options struct {
	Config func() *config.AgentConfiguration // in force
	All    func() []*collection.Collection
	Clock  clock.WithTickerAndDelayedExecution
	Log    *slog.Logger

	Named <-chan struct{} // has a value when a resource has become known

	// OpenStore opens a small store with the settings of the agent's own.
	OpenStore func(path string) (store.DB, error)

	// Scrape answers /metrics; nil if the agent has none.
	Scrape http.Handler
}

// dir returns the directory of the API's files, beside the database.
func (o *Options) dir() string { return serving.Dir(o.Config().Store.Path) }

// API is the Kubernetes API of an agent.
type API struct {
	Metrics *kubeapi.Metrics
	Handler http.Handler

	opts    Options
	server  *kubeapi.Server
	openAPI *openapi.Mirror        // nil for none
	version atomic.Pointer[[]byte] // the body of the server's /version; nil until it is known

	credentials *serving.Credentials // nil without an address
	callers     *access.Authenticator
	users       *serving.Users
	refusals    *refusals
	access      *clusterAccess      // nil if it is off
	signed      *signed.Certificate // nil without a signer
	kubelet     *serving.Kubelet    // nil if no certificate is issued to it
	forward     *forward.Handler    // nil if it is off
	tokens      store.DB            // nil if none are remembered
	documents   *documents.Mirror   // nil if nothing is forwarded
}

// New makes the handler. The version of the server, and its OpenAPI documents, are kept beside the
// database, so that they are there while the server is away. The caller closes the API.
func New(o Options) (*API, error) {
	a := &API{opts: o}
	cfg := o.Config()
	if cfg.KubernetesAPI.Enabled() {
		if err := os.MkdirAll(o.dir(), 0o700); err != nil {
			o.Log.Error("kubernetesAPI: the directory can't be made; nothing of the server is kept for the next start", "error", err)
		}
	}
	if body, err := os.ReadFile(a.versionFile()); err == nil && json.Valid(body) {
		a.version.Store(&body)
	}
	opts := kubeapi.Options{
		Collections: a.served, Unknown: a.unknown, Version: a.serverVersion, Scrape: o.Scrape,
		SpoolDir: filepath.Dir(cfg.Store.Path), Clock: o.Clock, Metrics: kubeapi.NewMetrics(),
	}
	if cfg.KubernetesAPI.OpenAPI && cfg.KubernetesAPI.Enabled() {
		mirror, err := openapi.Open(filepath.Join(o.dir(), "openapi"))
		if err == nil {
			a.openAPI, opts.OpenAPI = mirror, mirror
		} else {
			o.Log.Error("kubernetesAPI: no OpenAPI documents are served until the next start", "error", err)
		}
	}
	// A read-only disk refuses the deletion of a file that does not exist, too.
	if _, err := os.Lstat(a.tokensFile()); err == nil && !cfg.KubernetesAPI.Forward.RememberTokens {
		if err := os.Remove(a.tokensFile()); err != nil {
			o.Log.Error("kubernetesAPI: remembered tokens are not used, but can't be deleted; the next start retries", "error", err)
		}
	}
	a.refusals = newRefusals(opts.Metrics, o.Log)
	a.users = serving.NewUsers(func(r *http.Request, err error) {
		a.refusals.note(r.RemoteAddr, access.CallerOf(r.Context()).User.Username, err)
	})
	if err := a.openCredentials(&opts); err != nil {
		return nil, fmt.Errorf("kubernetesAPI: %w", err)
	}
	a.server = kubeapi.New(opts)
	a.Metrics, a.Handler = opts.Metrics, a.server
	return a, nil
}

// openCredentials reads or makes the token and certificates for the address.
func (a *API) openCredentials(opts *kubeapi.Options) (err error) {
	cfg := a.opts.Config().KubernetesAPI
	if cfg.Address == "" || !cfg.Access.IssueKubeletCertificate {
		a.removeKubelet()
	}
	if cfg.Signer == "" {
		a.removeSigned()
	}
	if cfg.Address == "" {
		return nil
	}
	if a.credentials, err = serving.Ensure(a.opts.dir(), a.opts.Clock.Now(), a.opts.Log); err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	a.openSigned()
	callers := access.AuthenticatorOptions{
		Token: a.credentials.Token, Clock: a.opts.Clock, Refused: func(r *http.Request, err error) { a.refusals.note(r.RemoteAddr, "", err) },
	}
	a.openKubelet(&callers)
	if !cfg.Access.Enabled {
		a.callers = access.NewAuthenticator(callers)
		return nil
	}
	if a.access, err = openAccess(a.opts, callers); err != nil {
		return fmt.Errorf("access: %w", err)
	}
	authorizer := a.access.authorizer
	a.callers, opts.Authorize, opts.Review, opts.OwnRules = a.access.callers, authorizer.Authorize, authorizer.Review, authorizer.OwnRules
	if err := a.openForward(opts); err != nil {
		return errors.Join(err, a.Close())
	}
	return nil
}

// Local returns a handler for callers that this machine lets in.
func (a *API) Local() http.Handler { return serving.Local(a.users.Limit(a.withBodies())) }

// withBodies returns the handler for requests with their bodies.
func (a *API) withBodies() http.Handler { return a.server.WithBodies(serving.DiscardBody(a.Handler)) }

// Close closes the stores of the API.
func (a *API) Close() error {
	err := a.access.close()
	if a.tokens != nil {
		err = errors.Join(err, a.tokens.Close())
	}
	return err
}

// Table is [kubeapi.Server.Table].
func (a *API) Table(collection string) (columns []string, cells func(raw []byte) ([]string, error)) {
	return a.server.Table(collection)
}

func (a *API) versionFile() string { return filepath.Join(a.opts.dir(), "version.json") }

func (a *API) serverVersion() []byte {
	if body := a.version.Load(); body != nil {
		return *body
	}
	return nil
}

// served returns the collections whose resource is known.
func (a *API) served() []*kubeapi.Collection {
	all := a.opts.All()
	served := make([]*kubeapi.Collection, 0, len(all))
	for _, c := range all {
		if s := c.Served(); s != nil {
			served = append(served, s)
		}
	}
	return served
}

// unknown returns the resources that the server has not named yet, except if it does not have them.
func (a *API) unknown() []kubeapi.Unknown {
	var out []kubeapi.Unknown
	for _, c := range a.opts.All() {
		if c.Served() == nil && !c.Missing() {
			out = append(out, c.Unknown())
		}
	}
	return out
}

// asking reports whether the server is being asked for a resource for the first time.
func (a *API) asking() bool {
	return slices.ContainsFunc(a.unknown(), kubeapi.Unknown.Asking)
}

// Listener is a place that the API is served at.
type Listener struct {
	net.Listener
	Server *http.Server
}

// Listen listens on the socket and the address of kubernetesAPI; none if the API is off.
func (a *API) Listen() (listeners []Listener, err error) {
	cfg := a.opts.Config().KubernetesAPI
	defer func() {
		if err != nil {
			err = fmt.Errorf("kubernetesAPI: %w", err)
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			listeners = nil
		}
	}()
	if cfg.Socket != "" {
		socket, err := serving.ListenUnix(cfg.Socket)
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, Listener{socket, serving.NewBodyServer(a.Local(), a.opts.Log)})
		a.opts.Log.Info("serving the Kubernetes API", "socket", cfg.Socket)
	}
	if cfg.Address != "" {
		of := serving.Files{Cert: cfg.CertFile, Key: cfg.KeyFile}
		if cfg.AuthorityCertFile != "" {
			of = serving.Files{Cert: cfg.AuthorityCertFile, Key: cfg.AuthorityKeyFile, Authority: true}
		}
		tcp, err := a.credentials.Listen(cfg.Address, of, func(peer string, err error) { a.refusals.note(peer, "", err) })
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, Listener{tcp, serving.NewBodyServer(serving.Authenticate(a.callers, a.users.Limit(a.withBodies())), a.opts.Log)})
		a.opts.Log.Info("serving the Kubernetes API", "address", cfg.Address)
	}
	return listeners, nil
}

// Certificate returns the certificate of the address; nil if the API does not listen there.
func (a *API) Certificate() *x509.Certificate {
	if a.credentials == nil {
		return nil
	}
	return a.credentials.Served()
}

// Follow keeps the server's version and OpenAPI documents current until ctx ends, if the API is on.
// It begins once the server has been asked for all resources.
func (a *API) Follow(ctx context.Context, cluster *upstream.Cluster) {
	if !a.opts.Config().KubernetesAPI.Enabled() {
		return
	}
	if a.access != nil {
		a.access.cluster.Store(cluster) // before a request is forwarded, whose answer is awaited over its link
	}
	a.Reconnect(cluster)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	if a.access != nil {
		tasks.Go(func() { a.access.follow(ctx, cluster) })
	}
	if a.signed != nil {
		tasks.Go(func() { a.runSigned(ctx, cluster) })
	}
	if a.kubelet != nil {
		tasks.Go(func() { a.renewKubelet(ctx) })
	}
	if a.documents != nil {
		tasks.Go(func() { a.keepDocuments(ctx, cluster) })
	}
	for a.asking() {
		if sleep.For(ctx, a.opts.Clock, time.Second) != nil {
			return
		}
	}
	sleep.Daily(ctx, a.opts.Clock, a.opts.Log, 0, a.opts.Named, func(ctx context.Context) error {
		return upstream.Explain(a.refresh(ctx, cluster))
	})
}

func (a *API) refresh(ctx context.Context, cluster *upstream.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	body, err := cluster.ServerVersion(ctx)
	if err != nil {
		return err
	}
	if was := a.version.Swap(&body); was == nil || !bytes.Equal(*was, body) {
		if err := files.WriteAtomic(a.versionFile(), body); err != nil {
			return err
		}
	}
	if a.openAPI == nil {
		return nil
	}
	return a.openAPI.Refresh(ctx, cluster.OpenAPI, a.server.GroupVersions())
}
