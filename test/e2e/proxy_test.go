package e2e

import (
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane"
)

// proxy is a network between an agent and the server that can be cut. The server
// itself goes on, as it does behind a thin link.
type proxy struct {
	t          *testing.T
	address    string
	target     string
	kubeconfig string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	silent   bool // takes connections and says nothing
	wg       sync.WaitGroup
}

// newProxy returns a proxy in working order, with the kubeconfig of a user that
// goes through it.
func newProxy(t *testing.T, cp *controlplane.ControlPlane, user string) *proxy {
	t.Helper()
	target, err := url.Parse(cp.URL())
	require.NoError(t, err)
	p := &proxy{t: t, address: freeAddress(t), target: target.Host, conns: make(map[net.Conn]struct{})}
	cfg, err := clientcmd.LoadFromFile(kubeconfig(t, cp, user))
	require.NoError(t, err)
	for _, c := range cfg.Clusters {
		c.Server = "https://" + p.address
	}
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*cfg, p.kubeconfig))
	p.up()
	t.Cleanup(func() {
		p.down()
		p.wg.Wait()
	})
	return p
}

// up lets connections through.
func (p *proxy) up() { p.open(false) }

// hang takes connections and never answers.
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
		if p.silent {
			continue
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(l, s) {
			c.Close()
			continue
		}
		p.wg.Go(func() { pipe(c, s) })
		p.wg.Go(func() { pipe(s, c) })
	}
}

// keep notes a connection, to be closed when the network is cut. It returns false
// where that has happened since l took it.
func (p *proxy) keep(l net.Listener, c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != l {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

// pipe copies until one end closes, then closes both.
func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from) // a connection that is cut is what it is for
	to.Close()
	from.Close()
}
