package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/snapcache/snapcache/kubeapi/serving"
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

// unavailable answers all requests as a server that is not ready does.
func unavailable(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"the Kubernetes API is not ready","reason":"ServiceUnavailable","code":503}`+"\n")
}
