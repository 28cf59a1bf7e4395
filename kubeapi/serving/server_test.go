package serving

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/snapcache/snapcache/access"
)

// serve serves h until the test ends, and returns the server and how clients reach it.
func serve(t *testing.T, h http.Handler) (*http.Server, *rest.Config) {
	t.Helper()
	c, _ := ensureAt(t, t.TempDir(), now)
	l, err := c.Listen("127.0.0.1:0", Files{}, nil)
	require.NoError(t, err)
	s := NewServer(Authenticate(access.NewAuthenticator(access.AuthenticatorOptions{Token: c.Token}), h), slog.New(slog.DiscardHandler))
	run(t, s, l)
	return s, &rest.Config{
		Host: "https://" + l.Addr().String(), BearerToken: c.Token, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA},
	}
}

func run(t *testing.T, s *http.Server, l net.Listener) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
}

// client returns an HTTP client of its own connection.
func client(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func overHTTP1(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	return config
}

// pods answers with an empty list, whose resourceVersion is the protocol of the request.
var pods = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[]}`, r.Proto)
})

func TestClientGo(t *testing.T) {
	_, config := serve(t, pods)
	list := func(config *rest.Config) (string, error) {
		c, err := dynamic.NewForConfigAndClient(config, client(t, config))
		require.NoError(t, err)
		l, err := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		return l.GetResourceVersion(), nil
	}
	proto, err := list(config)
	require.NoError(t, err)
	require.Equal(t, "HTTP/2.0", proto)
	proto, err = list(overHTTP1(config))
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1", proto)

	wrong := rest.CopyConfig(config)
	wrong.BearerToken = "wrong"
	_, err = list(wrong)
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)

	stranger := rest.CopyConfig(config)
	stranger.CAData = nil
	_, err = list(stranger)
	require.ErrorContains(t, err, "certificate")
}

// TestOnlyTLS: no request is served without TLS 1.2 or newer.
func TestOnlyTLS(t *testing.T) {
	reached := false
	_, config := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	address := strings.TrimPrefix(config.Host, "https://")
	for _, path := range []string{"/api/v1/pods", "/healthz"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+config.BearerToken)
		answer, err := client(t, &rest.Config{}).Do(r)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		require.NoError(t, answer.Body.Close())
	}
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		_, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}) //nolint:gosec // what is tested
		require.ErrorContains(t, err, "protocol version")
	}
	require.False(t, reached)
	answer, err := client(t, config).Get(config.Host + "/api/v1/pods")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.True(t, reached)
}

func TestListenWithFiles(t *testing.T) {
	c, _ := ensureAt(t, t.TempDir(), now)
	own, err := c.certificate("127.0.0.1")
	require.NoError(t, err)
	key, err := keyutil.MarshalPrivateKeyToPEM(own.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	require.NoError(t, cert.WriteCert(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})))
	l, err := c.Listen("127.0.0.1:0", Files{Cert: certFile, Key: keyFile}, nil)
	require.NoError(t, err)
	s := NewServer(pods, slog.New(slog.DiscardHandler))
	run(t, s, l)
	raw, err := os.ReadFile(certFile)
	require.NoError(t, err)
	answer, err := client(t, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: raw}}).Get("https://" + l.Addr().String())
	require.NoError(t, err, "the file serves as its own authority")
	require.NoError(t, answer.Body.Close())
	require.Equal(t, own.Certificate[0], answer.TLS.PeerCertificates[0].Raw)

	_, err = c.Listen("127.0.0.1:0", Files{Cert: keyFile, Key: certFile}, nil)
	require.ErrorContains(t, err, "certificate: ")
}

// TestImpersonation: an answer for the caller itself would mislead one that wants to be another.
func TestImpersonation(t *testing.T) {
	for _, name := range []string{"Impersonate-User", "Impersonate-Group", "impersonate-uid", "Impersonate-Extra-Scopes"} {
		w := ask(t, access.NewAuthenticator(access.AuthenticatorOptions{Token: "secret"}), "/api/v1/pods", http.Header{"Authorization": {"Bearer secret"}, http.CanonicalHeaderKey(name): {"admin"}})
		require.Equal(t, http.StatusUnauthorized, w.code, name)
	}
}

func TestAuthenticate(t *testing.T) {
	for _, tc := range []struct {
		name, path, header string
		code               int
	}{
		{"token", "/api/v1/pods", "Bearer secret", 200},
		{"other case", "/api/v1/pods", "bearer secret", 200},
		{"none", "/api/v1/pods", "", 401},
		{"wrong", "/api/v1/pods", "Bearer secre", 401},
		{"longer", "/api/v1/pods", "Bearer secret2", 401},
		{"empty", "/api/v1/pods", "Bearer ", 401},
		{"no scheme", "/api/v1/pods", "secret", 401},
		{"other scheme", "/api/v1/pods", "Basic secret", 401},
		{"health", "/healthz", "", 200},
		{"live", "/livez", "", 200},
		{"ready", "/readyz", "Bearer wrong", 200},
		{"below", "/livez/../api/v1/pods", "", 401},
		{"check", "/livez/ping", "", 401},
		{"version", "/version", "", 401},
	} {
		t.Run(tc.name, func(t *testing.T) {
			header := http.Header{}
			if tc.header != "" {
				header.Set("Authorization", tc.header)
			}
			w := ask(t, access.NewAuthenticator(access.AuthenticatorOptions{Token: "secret"}), tc.path, header)
			require.Equal(t, tc.code, w.code)
			if tc.code == http.StatusUnauthorized {
				require.Equal(t, "application/json", w.header.Get("Content-Type"))
				require.Empty(t, w.header.Get("WWW-Authenticate"), "a kube-apiserver sends none")
				require.JSONEq(t, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`, w.body.String())
			}
		})
	}
}

// A token that can't be judged yet gets 503 and not 401, after which a client would throw it away.
func TestAuthenticateWithoutKeys(t *testing.T) {
	a := access.NewAuthenticator(access.AuthenticatorOptions{Token: "secret", Connected: func() bool { return false }})
	for _, tc := range []struct {
		name, header string
		code         int
		retry        string
	}{
		{"a token of the cluster", "Bearer of.the.cluster", 503, "1"},
		{"no token", "", 401, ""},
		{"the agent's own", "Bearer secret", 200, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ask(t, a, "/api/v1/pods", http.Header{"Authorization": {tc.header}})
			require.Equal(t, tc.code, w.code, w.body.String())
			require.Equal(t, tc.retry, w.header.Get("Retry-After"))
		})
	}
}

// ask returns the answer to a request that comes from this machine.
func ask(t *testing.T, a *access.Authenticator, path string, header http.Header) *recorder {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost"+path, nil)
	require.NoError(t, err)
	r.RemoteAddr, r.Header = "127.0.0.1:40000", header
	w := &recorder{header: http.Header{}, code: http.StatusOK}
	Authenticate(a, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	return w
}

type recorder struct {
	header http.Header
	code   int
	body   strings.Builder
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
func (r *recorder) WriteHeader(code int)        { r.code = code }

func TestLimits(t *testing.T) {
	read := make(chan error, 1)
	_, config := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	}))
	for _, tc := range []struct {
		name   string
		config *rest.Config
	}{
		{"HTTP/2", config},
		{"HTTP/1.1", overHTTP1(config)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := client(t, tc.config)
			status := func(path string, header int, body io.Reader) int {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+path, body)
				require.NoError(t, err)
				r.Header.Set("X-Long", strings.Repeat("x", header))
				r.Header.Set("X-Longer", strings.Repeat("x", header))
				answer, err := c.Do(r)
				if err != nil && strings.Contains(err.Error(), "larger than peer's advertised limit") {
					return http.StatusRequestHeaderFieldsTooLarge // of HTTP/2, which the client knows by then
				}
				require.True(t, err == nil, "%.300v", err)
				defer answer.Body.Close()
				_, _ = io.Copy(io.Discard, answer.Body)
				return answer.StatusCode
			}
			require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, status("/", maxHeaderBytes*3/4, nil))
			require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, status("/?"+strings.Repeat("x", maxHeaderBytes*3/4), maxHeaderBytes/4, nil))
			require.Equal(t, http.StatusOK, status("/?"+strings.Repeat("x", maxHeaderBytes/2), 0, strings.NewReader(strings.Repeat("x", maxBodyBytes))))
			require.NoError(t, <-read)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host, strings.NewReader(strings.Repeat("x", maxBodyBytes+1)))
			require.NoError(t, err)
			if answer, err := c.Do(r); err == nil { // or the connection was reset
				require.NoError(t, answer.Body.Close())
				require.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode)
			}
			require.Empty(t, read, "the request was not served")
		})
	}
}

// TestShutdown checks that requests that would go on for ever end with the server, and that later ones
// of open connections are refused.
func TestShutdown(t *testing.T) {
	watching := make(chan struct{})
	s, config := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		watching <- struct{}{}
		<-r.Context().Done()
	}))
	ended := make(chan error, 2)
	for _, config := range []*rest.Config{config, overHTTP1(config)} {
		c := client(t, config)
		go func() {
			answer, err := c.Get(config.Host + "/api/v1/pods?watch=1")
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				err = errors.Join(err, answer.Body.Close())
			}
			ended <- err
		}()
		<-watching
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.Shutdown(ctx))
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	late := httptest.NewRecorder()
	s.Handler.ServeHTTP(late, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=1", nil))
	require.Equal(t, http.StatusTooManyRequests, late.Code)
	require.Equal(t, "1", late.Header().Get("Retry-After"))
}

// TestConnections checks that no more than maxConnections are open: another one takes the place of the one
// that has been idle for longest.
func TestConnections(t *testing.T) {
	dir, err := os.MkdirTemp("", "sock") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "kube.sock")
	l, err := ListenUnix(path)
	require.NoError(t, err)
	run(t, NewServer(pods, slog.New(slog.DiscardHandler)), l)
	ask := func() net.Conn {
		c, err := net.Dial("unix", path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		return c
	}
	answered := func(c net.Conn) error {
		line, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && !strings.Contains(line, "200") {
			err = errors.New(line)
		}
		return err
	}
	first := ask()
	require.NoError(t, answered(first))
	for range maxConnections - 1 {
		require.NoError(t, answered(ask()))
	}
	require.NoError(t, answered(ask()))
	_, err = io.Copy(io.Discard, first)
	require.NoError(t, err, "it ends")
}
