package serving

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
)

// ErrTooManyConnections means that a connection was closed since too many are open from its address, or
// from all other machines.
var ErrTooManyConnections = errors.New("too many connections are open from its address, or from other machines")

// Connections are the limits of a listener.
type Connections struct {
	// Max is how many may be open. Of these, four fifths may come from other machines, of which an
	// address has at most as many as it leaves to others: a fleet may come from one. The rest is for
	// this machine.
	Max int

	// Cuts is set if a connection with a request in progress may be closed for a new one: for listeners
	// whose clients are all the same, and need little time.
	Cuts bool

	// Refused is called with each connection that is closed at once, unless it is nil.
	Refused func(peer string, err error)
}

// Limit returns a listener of l with limits. Its connections have to be served by a server of this
// package. If they are too many, a new one takes the place of the one on which nothing has happened for
// longest, of those without a request in progress. If all have one, new ones wait, unless they may be cut.
func Limit(l net.Listener, c Connections) net.Listener { return newLimitedListener(l, c) }

func newLimitedListener(l net.Listener, c Connections) *limitedListener {
	x := &limitedListener{Listener: l, limits: c, remote: quota.NewShares(int64(c.Max / 5 * 4)), open: map[*limitedConn]struct{}{}}
	x.changed.L = &x.mu
	return x
}

type limitedListener struct {
	net.Listener
	limits Connections
	remote *quota.Shares // of the connections from other machines, by address
	events atomic.Int64  // numbers what happens on the connections, in order

	mu      sync.Mutex
	changed sync.Cond // a connection is closed or has no request any more, or the listener is closed
	open    map[*limitedConn]struct{}
	closed  bool
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		x := &limitedConn{Conn: c, of: l}
		if _, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			x.peer = addressOf(c.RemoteAddr())
			x.remote = !access.SameMachine(x.peer, addressOf(c.LocalAddr()))
		}
		if x.remote && !l.remote.Enter(x.peer) {
			_ = c.Close() // nothing was sent
			if l.limits.Refused != nil {
				l.limits.Refused(c.RemoteAddr().String(), ErrTooManyConnections)
			}
			continue
		}
		if !l.admit(x) {
			_ = x.Close() // the listener is closed
			return nil, net.ErrClosed
		}
		return x, nil
	}
}

// admit makes room for a connection. It returns false once the listener is closed.
func (l *limitedListener) admit(x *limitedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && len(l.open) >= l.limits.Max {
		old := l.oldestLocked()
		if old == nil {
			l.changed.Wait()
			continue
		}
		delete(l.open, old)
		_ = old.Conn.Close() // its server notices, and closes it too
	}
	x.touch()
	l.open[x] = struct{}{}
	return !l.closed
}

// oldestLocked returns the connection to close for a new one; nil if there is none.
func (l *limitedListener) oldestLocked() (oldest *limitedConn) {
	for x := range l.open {
		switch {
		case x.busy && !l.limits.Cuts:
		case oldest == nil, oldest.busy && !x.busy, oldest.busy == x.busy && x.last.Load() < oldest.last.Load():
			oldest = x
		}
	}
	return oldest
}

func (l *limitedListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.changed.Broadcast()
	return l.Listener.Close()
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	of     *limitedListener
	peer   netip.Addr
	remote bool         // it comes from another machine
	last   atomic.Int64 // the number of what happened last
	left   sync.Once

	busy bool // a request is in progress; guarded by of.mu
}

func (c *limitedConn) touch() { c.last.Store(c.of.events.Add(1)) }

func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.touch()
	return n, err
}

func (c *limitedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.touch()
	return n, err
}

func (c *limitedConn) Close() error {
	c.left.Do(func() {
		if c.remote {
			c.of.remote.Leave(c.peer)
		}
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
		c.of.changed.Broadcast()
	})
	return c.Conn.Close()
}

// noteState notes whether a connection has a request in progress. A header that is still to be read is none.
func noteState(c net.Conn, s http.ConnState) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	x, ok := c.(*limitedConn)
	if !ok {
		return
	}
	x.of.mu.Lock()
	x.busy = s == http.StateActive || s == http.StateHijacked
	x.of.mu.Unlock()
	if s == http.StateIdle {
		x.of.changed.Broadcast()
	}
}

func addressOf(a net.Addr) netip.Addr {
	if a, ok := a.(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
