package serving

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
)

// maxRemote limits the connections of a listener that come from elsewhere, on a node, of which an address
// has at most as many as it leaves to others: a fleet may come from one. The rest is for this machine.
const maxRemote = 512

// ErrTooManyConnections means that a connection was closed since too many are open from its address, or
// from all other machines.
var ErrTooManyConnections = errors.New("too many connections are open from its address, or from other machines")

// fairListener closes connections of clients that have too many. Those of this machine share an address,
// so that they are limited only in all.
type fairListener struct {
	net.Listener
	refused func(peer string, err error) // called with each closed connection, unless nil
	remote  *quota.Shares                // of the connections from other machines, by address
}

func newFairListener(l net.Listener, refused func(string, error)) *fairListener {
	return &fairListener{Listener: l, refused: refused, remote: quota.NewShares(maxRemote * quota.Scale())}
}

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
		if l.remote.Enter(peer) {
			return &fairConn{Conn: c, leave: sync.OnceFunc(func() { l.remote.Leave(peer) })}, nil
		}
		_ = c.Close() // nothing was sent
		if l.refused != nil {
			l.refused(c.RemoteAddr().String(), ErrTooManyConnections)
		}
	}
}

// fairConn is a connection that counts until it is closed.
type fairConn struct {
	net.Conn
	leave func()
}

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
