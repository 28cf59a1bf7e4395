package library

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
)

// proxy is a network between informers and the server, for the requests of one resource. It can cut
// connections and answer in place of the server.
type proxy struct {
	t        *testing.T
	address  string
	resource string
	forward  *httputil.ReverseProxy

	mu        sync.Mutex
	server    *http.Server
	cuts      int           // number of times that connections were cut
	watches   int           // answers to watches that have begun since, and not ended
	held      chan struct{} // closed when requests may continue; nil if none are held
	failing   bool          // requests are answered with 500
	failed    int           // such answers since failing began
	timeout   string
	bookmarks int
}

func newProxy(t *testing.T, resource string) *proxy {
	t.Helper()
	cfg := shared.RESTConfig(controlplane.Admin)
	target, err := url.Parse(cfg.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(cfg)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{t: t, address: l.Addr().String(), resource: resource}
	p.forward = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: p.count,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			panic(http.ErrAbortHandler) // breaks the connection
		},
	}
	p.serve(l)
	t.Cleanup(p.down)
	return p
}

// config is that of a client that goes through the proxy.
func (p *proxy) config() *rest.Config {
	return &rest.Config{Host: "http://" + p.address, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func (p *proxy) serve(l net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	server := p.server
	go func() { _ = server.Serve(l) }() // until it is closed
}

// down cuts all connections and refuses new ones.
func (p *proxy) down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.server.Close()
	p.cuts++
	p.watches = 0
}

// up lets connections through again.
func (p *proxy) up() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.address)
	require.NoError(p.t, err)
	p.serve(l)
}

// hold cuts all connections, and takes new ones whose requests wait for the returned
// function.
func (p *proxy) hold() (release func()) {
	p.down()
	held := make(chan struct{})
	p.mu.Lock()
	p.held = held
	p.mu.Unlock()
	p.up()
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held = nil
		close(held)
	})
}

// fail answers with 500 from now on, or no longer.
func (p *proxy) fail(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing, p.failed = on, 0
}

func (p *proxy) failures() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// endWatchesAfter sets the timeout of new watches in seconds; empty is that of the client.
func (p *proxy) endWatchesAfter(seconds string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timeout, p.bookmarks = seconds, 0
}

// seen returns the number of bookmarks since endWatchesAfter.
func (p *proxy) seen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bookmarks
}

// watching returns the number of open watches.
func (p *proxy) watching() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watches
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	failing := p.failing && path.Base(r.URL.Path) == p.resource
	if failing {
		p.failed++
	}
	if q := r.URL.Query(); p.timeout != "" && q.Has("watch") {
		q.Set("timeoutSeconds", p.timeout)
		r.URL.RawQuery = q.Encode()
	}
	held := p.held
	p.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	if failing {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"of the proxy"}`)
		return
	}
	p.forward.ServeHTTP(w, r)
}

// count counts the bookmarks in an answer, and the answer itself while it is that of an
// open watch.
func (p *proxy) count(r *http.Response) error {
	body := &counting{ReadCloser: r.Body, proxy: p, end: func() {}}
	r.Body = body
	if !r.Request.URL.Query().Has("watch") || r.StatusCode != http.StatusOK {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches++
	cuts := p.cuts
	body.end = sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.cuts == cuts {
			p.watches--
		}
	})
	return nil
}

type counting struct {
	io.ReadCloser
	proxy *proxy
	end   func()
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	if found := bytes.Count(b[:n], []byte(`"type":"BOOKMARK"`)); found > 0 {
		c.proxy.mu.Lock()
		defer c.proxy.mu.Unlock()
		c.proxy.bookmarks += found
	}
	return n, err
}

func (c *counting) Close() error {
	c.end()
	return c.ReadCloser.Close()
}
