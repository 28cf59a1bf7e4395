package e2e

import (
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane"
)

// proxy is a network between an agent and the server, which can be cut. The server itself keeps
// running, as behind a slow link.
type proxy struct {
	t          *testing.T
	address    string
	target     string
	kubeconfig string
	answered   atomic.Int64 // bytes from the server, as they come

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	silent   bool // accepts connections and sends nothing
	gate     *gate
	wg       sync.WaitGroup
}

// gate controls the connections made since it was created.
type gate struct {
	shut atomic.Bool   // data is dropped
	end  chan struct{} // closed with the connections
}

// newProxy returns a working proxy, with the kubeconfig of a user that goes through it.
func newProxy(t *testing.T, cp *controlplane.ControlPlane, user string) *proxy {
	t.Helper()
	target, err := url.Parse(cp.URL())
	require.NoError(t, err)
	p := networkTo(t, target.Host)
	cfg, err := clientcmd.LoadFromFile(kubeconfig(t, cp, user))
	require.NoError(t, err)
	for _, c := range cfg.Clusters {
		c.Server = "https://" + p.address
	}
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*cfg, p.kubeconfig))
	return p
}

// networkTo returns a working proxy to any address.
func networkTo(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{t: t, address: freeAddress(t), target: target, conns: make(map[net.Conn]struct{}), gate: &gate{end: make(chan struct{})}}
	p.up()
	t.Cleanup(func() {
		p.down()
		p.wg.Wait()
	})
	return p
}

// up lets connections through.
func (p *proxy) up() { p.open(false) }

// hang accepts connections and never answers.
func (p *proxy) hang() { p.open(true) }

func (p *proxy) open(silent bool) {
	p.t.Helper()
	p.down()
	l, err := net.Listen("tcp", p.address)
	require.NoError(p.t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener, p.silent = l, silent
	p.wg.Go(func() { p.accept(l) })
}

// down cuts all connections and refuses new ones.
func (p *proxy) down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
	close(p.gate.end)
	p.gate = &gate{end: make(chan struct{})}
}

// lose drops all further data of the existing connections, without a signal to either end. New
// connections work.
func (p *proxy) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.shut.Store(true)
	old := p.gate
	p.gate = &gate{end: old.end}
}

func (p *proxy) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if !p.keep(l, c) {
			c.Close()
			continue
		}
		p.mu.Lock()
		g := p.gate
		p.mu.Unlock()
		if p.silent {
			continue
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(l, s) {
			c.Close()
			continue
		}
		p.wg.Go(func() { pipe(c, s, g, &p.answered) })
		p.wg.Go(func() { pipe(s, c, g, new(atomic.Int64)) })
	}
}

// keep registers a connection, to be closed when the network is cut. It returns false if that has
// happened since l accepted the connection.
func (p *proxy) keep(l net.Listener, c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != l {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

// pipe copies until one end closes, then closes both. It counts the bytes.
func pipe(to, from net.Conn, g *gate, count *atomic.Int64) {
	_, _ = io.Copy(to, passing{from, g, count}) // an error is expected: tests cut connections
	to.Close()
	from.Close()
}

// passing reads what a gate lets through.
type passing struct {
	from  net.Conn
	gate  *gate
	count *atomic.Int64
}

// Read blocks until the end once the gate is shut.
func (p passing) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	if p.gate.shut.Load() {
		<-p.gate.end
		return 0, net.ErrClosed
	}
	p.count.Add(int64(n))
	return n, err
}
