package upstream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// certificate returns a self-signed certificate.
func certificate(t *testing.T, name string, notAfter time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0), NotAfter: notAfter,
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// tlsServer starts a server with cert and returns its address.
func tlsServer(t *testing.T, cert tls.Certificate, change func(*tls.Config)) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, `{"metadata":{"uid":"u"}}`)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	if change != nil {
		change(srv.TLS)
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL
}

// The errors are those of real connections.
func TestDescribeConnections(t *testing.T) {
	good := certificate(t, "server.example.com", time.Now().Add(time.Hour))
	other := certificate(t, "server.example.com", time.Now().Add(time.Hour))
	expired := certificate(t, "server.example.com", time.Unix(1000, 0))
	url := tlsServer(t, good, nil)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	closed, err := net.Listen("tcp", "127.0.0.2:0") // the servers of 127.0.0.1 may get a port that is free again
	require.NoError(t, err)
	refused := closed.Addr().String()
	closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	require.NoError(t, err)
	defer silent.Close()

	trust := func(c tls.Certificate) rest.TLSClientConfig { return rest.TLSClientConfig{CAData: certPEM(c.Leaf)} }
	named := trust(good)
	named.ServerName = "wrong.example.com"
	for _, tc := range []struct {
		name string
		cfg  *rest.Config
		kind ErrorClass
		want string
	}{
		{"works", &rest.Config{Host: url, TLSClientConfig: trust(good)}, "", ""},
		{"unknown authority", &rest.Config{Host: url, TLSClientConfig: trust(other)}, Untrusted, "the server's certificate is not signed by the CA in the kubeconfig: "},
		{"hostname", &rest.Config{Host: url, TLSClientConfig: named}, Untrusted, "not valid for wrong.example.com (but for server.example.com, 127.0.0.1): use one of its names"},
		{"expired", &rest.Config{Host: tlsServer(t, expired, nil), TLSClientConfig: trust(expired)}, Untrusted, "not valid at this device's time (current time "},
		{"client certificate", &rest.Config{Host: tlsServer(t, good, func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }), TLSClientConfig: trust(good)},
			Untrusted, "aborted the TLS handshake: check the client certificate in the kubeconfig"},
		{"no TLS", &rest.Config{Host: strings.Replace(plain.URL, "http:", "https:", 1), TLSClientConfig: trust(good)}, Untrusted, "the server does not speak TLS at 127.0.0.1:"},
		{"only TLS", &rest.Config{Host: strings.Replace(url, "https:", "http:", 1)}, Other, "write https:// before its address"},
		{"refused", &rest.Config{Host: "https://" + refused}, Unreachable, "connection refused by " + refused + ": check that the kube-apiserver runs there"},
		{"no host", &rest.Config{Host: "https://no-such-host.invalid"}, Unreachable, `no-such-host.invalid"`},
		{"no answer", &rest.Config{Host: "https://" + silent.Addr().String()}, Unreachable, "no answer from " + silent.Addr().String() + " in time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			patience := time.Minute
			if tc.name == "no answer" {
				patience = 20 * time.Millisecond
			}
			c, err := New(tc.cfg)
			require.NoError(t, err)
			defer c.Close()
			s := podSource(c)
			for _, c := range []struct {
				what string
				call func(context.Context) error
			}{
				{"identity", func(ctx context.Context) error { _, err := c.Identity(ctx); return err }},
				{"resolve", func(ctx context.Context) error { _, err := c.Resolve(ctx, "x", "v1", ""); return err }},
				{"list", func(ctx context.Context) error { _, err := s.List(ctx, ListOptions{}, nil); return err }},
				{"watch", func(ctx context.Context) error { _, err := s.Watch(ctx, "1", time.Minute); return err }},
				{"probe", func(ctx context.Context) error { return s.Probe(ctx, "1") }},
			} {
				if tc.kind == "" && c.what != "identity" {
					continue // the server serves nothing else
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				err := c.call(ctx)
				cancel()
				require.Equal(t, tc.kind, Classify(err), "%s: %v", c.what, err)
				require.Contains(t, Describe(err), tc.want, c.what)
				require.NotContains(t, Describe(err), "\n")
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	st := func(code int32, reason metav1.StatusReason, msg string, d *metav1.StatusDetails) error {
		return fmt.Errorf("list pods: %w", apierrors.FromObject(&metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: msg, Details: d}))
	}
	jwt := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
	for _, tc := range []struct {
		name string
		err  error
		kind ErrorClass
		want []string
	}{
		{"nil", nil, "", []string{""}},
		{"unauthorized", st(401, "Unauthorized", "Unauthorized", nil), Unauthorized, []string{"does not accept the credential", "renew the token or client certificate in the kubeconfig"}},
		{"forbidden", st(403, "Forbidden", `deployments.apps is forbidden: User "edge" cannot list resource "deployments" in API group "apps" at the cluster scope`,
			&metav1.StatusDetails{Group: "apps", Kind: "deployments"}), Forbidden, []string{"grant get, list and watch on deployments.apps", `User "edge"`}},
		{"forbidden, core", st(403, "Forbidden", "", &metav1.StatusDetails{Kind: "pods"}), Forbidden, []string{"watch on pods to this user"}},
		{"not found", st(404, "NotFound", "the server could not find the requested resource", nil), Gone, []string{"CRD is installed"}},
		{"expired", st(410, "Expired", "too old resource version: 1 (5)", nil), Expired, []string{"a new list is needed: too old"}},
		{"gone", st(410, "Gone", "x", nil), Expired, []string{"410"}},
		{"busy", st(429, "TooManyRequests", "x", &metav1.StatusDetails{RetryAfterSeconds: 7}), Throttled, []string{"a retry in 7 s"}},
		{"failure", st(500, "InternalError", "etcdserver: no leader", nil), Server, []string{"(500)", "no leader", "kube-apiserver's log"}},
		{"bad request", st(400, "BadRequest", "unable to parse requirement", nil), Other, []string{"(400): unable to parse"}},
		{"lost", st(0, ReasonConnectionLost, "the connection broke during a watch: EOF", nil), Unreachable, []string{"broke during a watch", "check the network"}},
		{"ahead", fmt.Errorf("probe pods: %w", ErrAhead), Ahead, []string{"lags", "restored from a backup"}},
		{"lags", fmt.Errorf("probe pods: %w", behind("7", "9", st(504, "Timeout", "Too large resource version: 7, current: 5", nil))), Ahead, []string{"it is one of several and lags; waiting loses nothing"}},
		{"no resource", fmt.Errorf("look up: %w", &NoResourceError{"no x: did you mean x.y?"}), Gone, []string{"did you mean x.y?"}},
		{"bad list", fmt.Errorf("list: %w: %w: HTML", ErrBadList, errNotJSON), Other, []string{"not a complete list", "login page"}},
		{"stopped", fmt.Errorf("watch: %w", context.Canceled), Other, []string{"stopped"}},
		{"DNS", &net.DNSError{Name: "api.example.com", Err: "server misbehaving"}, Unreachable, []string{`DNS does not answer for "api.example.com"`}},
		{"no route", &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}, Unreachable, []string{"no route"}},
		{"HTTP/2", errors.New("stream error: stream ID 7; INTERNAL_ERROR; received from peer"), Unreachable, []string{"lost"}},
		{"credential", errors.New(`Get "https://a": getting credentials: exec: "aws": executable file not found in $PATH`), Unauthorized, []string{"credential plugin", "aws"}},
		{"lines", errors.New("a\n\tb"), Other, []string{"a b"}},
		{"secrets", st(400, "BadRequest", "bad header Authorization: Bearer 0123456789abcdef0123 for https://me:pw@a/ with "+jwt, nil), Other, []string{"Bearer ***", "://***@a/", "with ***"}},
		{"long", errors.New(strings.Repeat("ä", 5000)), Other, []string{"ä…"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Describe(tc.err)
			require.Equal(t, tc.kind, Classify(tc.err))
			for _, want := range tc.want {
				require.Contains(t, got, want)
			}
			require.NotContains(t, got, "\n")
			require.Less(t, len(got), 1024)
			for _, secret := range []string{"0123456789abcdef", "me:pw", "c2lnbmF0dXJl"} {
				require.NotContains(t, got, secret)
			}
		})
	}
}

func TestFault(t *testing.T) {
	for _, class := range append(ErrorClasses(), "") {
		require.NotEmpty(t, class.Fault(), class)
	}
}
