package serving

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/snapcache/snapcache/localapi"
)

// Limits against clients that send too much, or too slowly.
const (
	maxConnections    = 256      // of each listener; further ones wait
	maxHeaderBytes    = 64 << 10 // of the request line and the header; more is answered with 431
	maxBodyBytes      = 1 << 20
	readHeaderTimeout = 10 * time.Second // and that of the TLS handshake
	idleTimeout       = 2 * time.Minute  // of a connection without a request
)

// Listen listens on a TCP address for HTTP/2 and HTTP/1.1 over TLS. The certificate is that in the
// files, or, if their names are empty, a new one for the address.
func (c *Credentials) Listen(address, certFile, keyFile string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var certificate tls.Certificate
	if certFile != "" {
		certificate, err = tls.LoadX509KeyPair(certFile, keyFile)
	} else {
		certificate, err = c.certificate(host)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: give another address", err)
	}
	// The limit is below TLS: net/http recognises HTTP/2 only on a *tls.Conn.
	return tls.NewListener(netutil.LimitListener(listener, maxConnections), &tls.Config{
		Certificates: []tls.Certificate{certificate},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}), nil
}

// ListenUnix listens on a unix socket that only this user can connect to, see [localapi.Listen].
func ListenUnix(path string) (net.Listener, error) {
	listener, err := localapi.Listen(path)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(listener, maxConnections), nil
}

// NewServer returns a server of h. Its Shutdown ends the contexts of the requests in progress, so that
// watches end.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	requests, cancel := context.WithCancel(context.Background())
	s := &http.Server{
		Handler:           http.MaxBytesHandler(h, maxBodyBytes),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	s.RegisterOnShutdown(cancel)
	return s
}
