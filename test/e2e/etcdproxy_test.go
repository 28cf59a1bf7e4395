package e2e

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// slowEtcd is a proxy before an etcd that holds back watch events; other requests pass at once. An
// apiserver behind it has a cache that lags, while its direct reads return the newest state.
type slowEtcd struct {
	url string

	mu   sync.Mutex
	held chan struct{} // closed when watches continue
}

func newSlowEtcd(t *testing.T, target string) *slowEtcd {
	t.Helper()
	etcd, err := url.Parse(target)
	require.NoError(t, err)
	s := &slowEtcd{held: make(chan struct{})}
	close(s.held)
	var plain http.Protocols // gRPC without TLS
	plain.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &plain}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(etcd) },
		ModifyResponse: s.hinder,
		Transport:      transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // it logs each client that goes
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	l, err := net.Listen("tcp", harness.FreeAddress(t))
	require.NoError(t, err)
	s.url = "http://" + l.Addr().String()
	srv := &http.Server{Handler: forward, Protocols: &plain, ErrorLog: log.New(t.Output(), "slow etcd: ", 0)} //nolint:gosec // a server of a test
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(l) // closed below
	}()
	t.Cleanup(func() {
		s.goOn()
		srv.Close()
		<-ended
		transport.CloseIdleConnections()
	})
	return s
}

// hold holds back the events of watches from now on, until goOn.
func (s *slowEtcd) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = make(chan struct{})
}

// goOn releases the held events, in order. It does nothing if none are held.
func (s *slowEtcd) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.held:
	default:
		close(s.held)
	}
}

func (s *slowEtcd) hinder(r *http.Response) error {
	if r.Request.URL.Path == "/etcdserverpb.Watch/Watch" {
		r.Body = heldBody{r.Body, s}
	}
	return nil
}

// heldBody is the response body of a watch.
type heldBody struct {
	io.ReadCloser
	etcd *slowEtcd
}

func (b heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.etcd.mu.Lock()
	held := b.etcd.held
	b.etcd.mu.Unlock()
	<-held
	return n, err
}
