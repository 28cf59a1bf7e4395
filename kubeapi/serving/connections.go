package serving

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/snapcache/snapcache/access"
)

const (
	maxRemote     = 192 // connections of a listener that come from elsewhere: the rest is for this machine
	maxPerAddress = 64  // of those, the ones from one address
)

// ErrTooManyConnections means that a connection was closed since too many are open from its address, or
// from all other machines.
var ErrTooManyConnections = errors.New("too many connections are open from its address, or from other machines")

// fairListener closes connections of clients that have too many. Those of this machine share an address,
// so that they are limited only in all.
type fairListener struct {
	net.Listener
	refused func(peer string, err error) // nil for nothing

	mu     sync.Mutex
	remote int
	open   map[netip.Addr]int
}

func newFairListener(l net.Listener, refused func(string, error)) *fairListener {
	return &fairListener{Listener: l, refused: refused, open: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, own := addressOf(c.RemoteAddr()), addressOf(c.LocalAddr())
		if access.SameMachine(peer, own) {
			return c, nil
		}
		if l.enter(peer) {
			return &fairConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(peer) })}, nil
		}
		_ = c.Close() // nothing was sent
		if l.refused != nil {
			l.refused(c.RemoteAddr().String(), ErrTooManyConnections)
		}
	}
}

func (l *fairListener) enter(peer netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remote >= maxRemote || l.open[peer] >= maxPerAddress {
		return false
	}
	l.remote++
	l.open[peer]++
	return true
}

func (l *fairListener) leave(peer netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remote--
	if l.open[peer]--; l.open[peer] == 0 {
		delete(l.open, peer)
	}
}

// fairConn is a connection that counts until it is closed.
type fairConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *fairConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

func addressOf(a net.Addr) netip.Addr {
	if a, ok := a.(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
