package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// gateway is the address of a server, like that of a load balancer. The server behind it can be
// exchanged, and it can answer requests itself. The network before it can be cut.
//
// It accepts one token, or one client certificate, and replaces it by the administrator's token. It
// forwards any other unchanged, as a token that the server does not know.
type gateway struct {
	*harness.Network
	caFile, tokenFile, certFile, keyFile string

	mu      sync.Mutex
	behind  *backend
	watched *backend // gets the watches; nil for the same backend
	token   string
	client  []byte // the certificate, nil for none
	cert    tls.Certificate
	inject  func(*http.Request) int // the status to answer with; nil, or a result of 0, forwards the request
	refused int                     // number of requests answered by inject
	lists   int                     // number of lists that began
	watches int                     // number of watches that began
	// handle reports whether it has answered; nil for none. It is set before the first request.
	handle func(http.ResponseWriter, *http.Request) bool
	delay  int  // Retry-After of a 429, in seconds; 0 for 1
	box    *box // what requests pass through; nil for nothing
}

// backend is a server behind a gateway.
type backend struct {
	forward      *httputil.ReverseProxy
	admin, other *http.Transport // for requests of the administrator, and all others
}

// asAdmin marks the context of a request that is made as the administrator.
type asAdmin struct{}

// RoundTrip implements [http.RoundTripper].
func (b *backend) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(asAdmin{}) != nil {
		return b.admin.RoundTrip(r)
	}
	return b.other.RoundTrip(r)
}

func (b *backend) closeIdle() {
	b.admin.CloseIdleConnections()
	b.other.CloseIdleConnections()
}

func newGateway(t *testing.T, cp *controlplane.ControlPlane) *gateway {
	t.Helper()
	dir := t.TempDir()
	g := &gateway{caFile: filepath.Join(dir, "ca.crt"), tokenFile: filepath.Join(dir, "token"), token: "first"}
	g.certFile, g.keyFile = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	srv := httptest.NewUnstartedServer(g)
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(t.Output(), "gateway: ", 0)
	// Not GetCertificate, which is not called for clients that connect to an IP address.
	srv.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		return &tls.Config{Certificates: []tls.Certificate{g.cert}, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.RequestClientCert}, nil //nolint:gosec // a server of a test
	}}
	g.certify(t, cp)
	srv.StartTLS()
	t.Cleanup(func() {
		g.Down()
		srv.CloseClientConnections()
		srv.Close()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.behind.closeIdle()
		if g.watched != nil {
			g.watched.closeIdle()
		}
	})
	g.Network = harness.NewNetwork(t, srv.Listener.Addr().String())
	g.lead(t, cp)

	g.Kubeconfig = filepath.Join(dir, "kubeconfig")
	g.writeKubeconfig(t, &clientcmdapi.AuthInfo{TokenFile: g.tokenFile})
	g.trust(t, cp)
	g.giveToken(t, "first")
	return g
}

// writeKubeconfig sets the credentials of the agent, from its next start.
func (g *gateway) writeKubeconfig(t *testing.T, auth *clientcmdapi.AuthInfo) {
	t.Helper()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["gateway"] = &clientcmdapi.Cluster{Server: "https://" + g.Address, CertificateAuthority: g.caFile}
	cfg.AuthInfos["agent"] = auth
	cfg.Contexts["gateway"] = &clientcmdapi.Context{Cluster: "gateway", AuthInfo: "agent"}
	cfg.CurrentContext = "gateway"
	require.NoError(t, clientcmd.WriteToFile(*cfg, g.Kubeconfig))
}

// lead puts a server behind the gateway, for all later requests.
func (g *gateway) lead(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	b := g.to(t, cp)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, old := range []*backend{g.behind, g.watched} {
		if old != nil {
			old.closeIdle()
		}
	}
	g.behind, g.watched = b, nil
}

// leadWatches puts another server behind the gateway for watches, as if requests took turns between
// several servers.
func (g *gateway) leadWatches(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	b := g.to(t, cp)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watched = b
}

func (g *gateway) to(t *testing.T, cp *controlplane.ControlPlane) *backend {
	t.Helper()
	target, err := url.Parse(cp.URL())
	require.NoError(t, err)
	admin := cp.RESTConfig(controlplane.Admin)
	connect := func(as *rest.Config) *http.Transport {
		config, err := rest.TLSConfigFor(as)
		require.NoError(t, err)
		return &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	}
	b := &backend{admin: connect(admin), other: connect(rest.AnonymousClientConfig(admin))}
	b.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			g.mu.Lock()
			defer g.mu.Unlock()
			shown := r.In.TLS.PeerCertificates
			switch {
			case r.In.Header.Get("Authorization") == "Bearer "+g.token, len(shown) > 0 && bytes.Equal(shown[0].Raw, g.client):
				r.Out.Header.Set("Authorization", "Bearer "+admin.BearerToken)
				r.Out = r.Out.WithContext(context.WithValue(r.Out.Context(), asAdmin{}, true))
			case len(shown) > 0:
				r.Out.Header.Set("Authorization", "Bearer of an unknown certificate")
			}
		},
		Transport: b, FlushInterval: -1, ErrorLog: log.New(t.Output(), "gateway: ", 0),
		// As if the client were connected to the server itself.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return b
}

// ServeHTTP implements [http.Handler].
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.handle != nil && g.handle(w, r) {
		return
	}
	g.mu.Lock()
	b, inject, delay, box := g.behind, g.inject, g.delay, g.box
	if g.watched != nil && r.URL.Query().Has("watch") {
		b = g.watched
	}
	switch q := r.URL.Query(); {
	case q.Get("limit") == "500" && !q.Has("continue"):
		g.lists++
	case q.Has("watch") && q.Get("timeoutSeconds") != "1": // which asks if a silent watch has missed something
		g.watches++
	}
	code := 0
	if inject != nil {
		code = inject(r)
	}
	if code != 0 {
		g.refused++
	}
	g.mu.Unlock()
	if code == 0 && box != nil {
		box.pass(b.forward, w, r)
		return
	}
	if code == 0 {
		b.forward.ServeHTTP(w, r)
		return
	}
	details := "{}"
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, delay)))
		details = `{"retryAfterSeconds":` + strconv.Itoa(max(1, delay)) + `}` // which client-go prefers to the header
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if code == http.StatusOK { // as a login page
		_, _ = w.Write([]byte("{}"))
		return
	}
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"injected","code":` + strconv.Itoa(code) +
		`,"details":` + details + `}`))
}

// answer has the gateway answer requests itself if f returns a status; a nil f ends that. Calls of
// f are serialized.
func (g *gateway) answer(f func(*http.Request) int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inject, g.refused = f, 0
}

// begun returns the numbers of lists and watches that clients have begun.
func (g *gateway) begun() (lists, watches int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lists, g.watches
}

// answered returns the number of requests that the gateway has answered itself.
func (g *gateway) answered() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// accept makes this token the only valid one.
func (g *gateway) accept(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.token = token
}

// giveToken writes a token to the agent's token file.
func (g *gateway) giveToken(t *testing.T, token string) { replaceFile(t, g.tokenFile, []byte(token)) }

// acceptCertificate makes a new client certificate the only valid one, and returns a function that
// writes it to the agent's files.
func (g *gateway) acceptCertificate(t *testing.T) (give func()) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}, &x509.Certificate{}, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.client = der
	return func() {
		t.Helper()
		replaceFile(t, g.keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
		replaceFile(t, g.certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
}

// certify makes the gateway present a certificate of the control plane's authority.
func (g *gateway) certify(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	pki := filepath.Join(cp.Dir(), "pki")
	cert, err := tls.LoadX509KeyPair(filepath.Join(pki, "apiserver.crt"), filepath.Join(pki, "apiserver.key"))
	require.NoError(t, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cert = cert
}

// trust writes the authority of a control plane to the agent's CA file.
func (g *gateway) trust(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	replaceFile(t, g.caFile, harness.ReadFile(t, filepath.Join(cp.Dir(), "pki", "ca.crt")))
}

// replaceFile replaces a file atomically: a reader gets the old content or the new one.
func replaceFile(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", content, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}
