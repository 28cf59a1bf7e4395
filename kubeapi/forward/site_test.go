package forward

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/logging/logtest"
)

// token is that of the caller of a site, unless a test has another one.
const token = "the-callers-own-token"

// site is a server, and a proxy of the handler in front of it. Clients are those of cfg's TLS.
type site struct {
	*Handler
	t        *testing.T
	upstream *httptest.Server
	proxy    *httptest.Server
	offline  atomic.Bool
	caller   atomic.Pointer[access.Caller]
	log      logtest.Buffer
}

// newSite starts a server of h over HTTP/2 and HTTP/1.1, and a proxy to it. Its caller has a token.
func newSite(t *testing.T, h http.Handler, change ...func(*Options)) *site {
	t.Helper()
	s := &site{t: t}
	s.upstream = startTLS(t, h)
	opts := Options{
		Connected: func() bool { return !s.offline.Load() }, Clock: clock.RealClock{},
		Await: await,
		Log:   slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, fn := range change {
		fn(&opts)
	}
	s.Handler = New(opts)
	require.NoError(t, s.connect(&rest.Config{Host: s.upstream.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority(t, s.upstream)}}))
	s.caller.Store(&access.Caller{User: authenticationv1.UserInfo{Username: "user"}})
	s.proxy = startTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), s.caller.Load())))
	}))
	t.Cleanup(s.closeIdle)
	return s
}

// connect sets the server.
func (s *site) connect(config *rest.Config) error { return s.Connect(config, config) }

// await is Options.Await of a server that is never silent.
func await(ctx context.Context, _ time.Duration) (context.Context, func(error)) {
	return ctx, func(error) {}
}

// plain removes the encryption of both connections.
func (s *site) plain() {
	s.t.Helper()
	up, proxy := httptest.NewServer(s.upstream.Config.Handler), httptest.NewServer(s.proxy.Config.Handler)
	s.t.Cleanup(up.Close)
	s.t.Cleanup(proxy.Close)
	s.t.Cleanup(s.closeIdle)
	s.closeIdle()
	s.upstream, s.proxy = up, proxy
	require.NoError(s.t, s.connect(&rest.Config{Host: up.URL}))
}

// closeIdle closes the connections of the handler.
func (s *site) closeIdle() {
	close := func(r *route) {
		for _, t := range []http.RoundTripper{r.requests, r.upgrades} {
			utilnet.CloseIdleConnectionsFor(t)
		}
	}
	close(s.server.Load().tokens)
	for _, x := range s.identities {
		for _, to := range []*route{x.to, x.bearer.to} {
			if to != nil {
				close(to)
			}
		}
	}
}

func startTLS(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func authority(t *testing.T, s *httptest.Server) []byte {
	t.Helper()
	pem, err := cert.EncodeCertificates(s.Certificate())
	require.NoError(t, err)
	return pem
}

// client returns a client of a server, over HTTP/2 or HTTP/1.1. It asks for no compression.
func client(t *testing.T, s *httptest.Server, protocol string) *http.Client {
	t.Helper()
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{protocol}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: protocol == "h2", DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request returns a request with the caller's token.
func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// dial opens a connection to a server, over which a test speaks HTTP/1.1 itself.
func dial(t *testing.T, s *httptest.Server) *tls.Conn {
	t.Helper()
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	config.ServerName = "example.com"
	c, err := (&tls.Dialer{Config: config}).DialContext(context.Background(), "tcp", strings.TrimPrefix(s.URL, "https://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.(*tls.Conn)
}
