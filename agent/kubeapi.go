package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/kubeapi/openapi"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/upstream"
)

// kubernetesAPI listens on the socket and the address of kubernetesAPI, and returns the functions that
// serve handler there until their context ends; none if the API is off.
func (a *Agent) kubernetesAPI(handler http.Handler) (servers []func(context.Context) error, err error) {
	cfg := a.config().KubernetesAPI
	var socket net.Listener
	defer func() {
		if err != nil && socket != nil {
			_ = socket.Close()
		}
	}()
	if cfg.Socket != "" {
		if socket, err = serving.ListenUnix(cfg.Socket); err != nil {
			return nil, fmt.Errorf("kubernetesAPI: %w", err)
		}
		servers = append(servers, serveOn(socket, serving.NewServer(handler, a.log)))
		a.log.Info("serving the Kubernetes API", "socket", cfg.Socket)
	}
	if cfg.Address != "" {
		credentials, err := serving.Ensure(serving.Dir(a.config().Store.Path), a.clock.Now(), a.log)
		if err != nil {
			return nil, fmt.Errorf("kubernetesAPI: credentials: %w", err)
		}
		tcp, err := credentials.Listen(cfg.Address, cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("kubernetesAPI: %w", err)
		}
		servers = append(servers, serveOn(tcp, serving.NewServer(serving.Authenticate(credentials.Token, handler), a.log)))
		a.log.Info("serving the Kubernetes API", "address", cfg.Address)
	}
	return servers, nil
}

// kube is the Kubernetes API of an agent with what it has of the server.
type kube struct {
	*kubeapi.Server
	metrics *kubeapi.Metrics
	openAPI *openapi.Mirror        // nil for none
	version atomic.Pointer[[]byte] // the server's; nil until it is known
	file    string                 // that keeps it
}

// newKube makes the Kubernetes API. The version of the server, and its OpenAPI documents, are kept
// beside the database, so that they are there while the server is away.
func (a *Agent) newKube() error {
	dir := serving.Dir(a.config().Store.Path)
	if a.config().KubernetesAPI.Enabled() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("kubernetesAPI: %w", err)
		}
	}
	k := &kube{metrics: kubeapi.NewMetrics(), file: filepath.Join(dir, "version.json")}
	if body, err := os.ReadFile(k.file); err == nil && json.Valid(body) {
		k.version.Store(&body)
	}
	var documents http.Handler
	if a.config().KubernetesAPI.OpenAPI {
		mirror, err := openapi.Open(filepath.Join(dir, "openapi"))
		if err != nil {
			return fmt.Errorf("kubernetesAPI: OpenAPI documents: %w", err)
		}
		k.openAPI, documents = mirror, mirror
	}
	k.Server = kubeapi.New(kubeapi.Options{
		Collections: a.served, OpenAPI: documents, SpoolDir: filepath.Dir(a.config().Store.Path), Clock: a.clock, Metrics: k.metrics,
		Version: func() []byte {
			if body := k.version.Load(); body != nil {
				return *body
			}
			return nil
		},
	})
	a.kube = k
	return nil
}

// served returns the collections of the Kubernetes API.
func (a *Agent) served() []*kubeapi.Collection {
	var served []*kubeapi.Collection
	for _, c := range a.all() {
		if s := c.Served(); s != nil {
			served = append(served, s)
		}
	}
	return served
}

// serverInterval is the time between two reads of the server's version and OpenAPI documents.
const serverInterval = 24 * time.Hour

// followServer keeps the server's version and OpenAPI documents current until ctx ends, if the
// Kubernetes API is on.
func (a *Agent) followServer(ctx context.Context, cluster *upstream.Cluster) {
	backoff := wait.Backoff{Duration: time.Second, Cap: 10 * time.Minute, Factor: 2, Jitter: 0.5, Steps: 12}
	for a.config().KubernetesAPI.Enabled() {
		if len(a.served()) < len(a.all()) { // the server has not named all resources yet
			if sleep.For(ctx, a.clock, time.Second) != nil {
				return
			}
			continue
		}
		d := wait.Jitter(serverInterval, 0.2)
		if err := a.kube.refresh(ctx, cluster); err != nil {
			d = backoff.Step()
			a.log.Debug("the server's version or OpenAPI documents can't be read; retrying", "wait", d.Round(time.Second), "error", upstream.Explain(err))
		}
		if sleep.For(ctx, a.clock, d) != nil {
			return
		}
	}
}

func (k *kube) refresh(ctx context.Context, cluster *upstream.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	body, err := cluster.ServerVersion(ctx)
	if err != nil {
		return err
	}
	if was := k.version.Swap(&body); was == nil || !bytes.Equal(*was, body) {
		if err := serving.WriteFile(k.file, body); err != nil {
			return err
		}
	}
	if k.openAPI == nil {
		return nil
	}
	return k.openAPI.Refresh(ctx, cluster.OpenAPI, k.GroupVersions())
}
