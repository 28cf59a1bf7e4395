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
)

// slowEtcd stands before an etcd and holds back what it sends to those who watch. Whoever
// else asks has his answer at once: an apiserver behind it has a cache that lags, and
// knows by its other reads what is new.
type slowEtcd struct {
	url string

	mu   sync.Mutex
	held chan struct{} // closed when watches go on
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
		Transport:      transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // it tells of each client that goes
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	l, err := net.Listen("tcp", freeAddress(t))
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

// hold keeps back what watches would hear from now on, until goOn.
func (s *slowEtcd) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = make(chan struct{})
}

// goOn lets them have it all, in order. It does nothing where nothing is held back.
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

// heldBody is what somebody who watches reads.
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
