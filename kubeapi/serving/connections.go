package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/network"
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

	// Refused is called with each connection that is closed at once, unless it is nil.
	Refused func(peer string, err error)
}

// Limit returns a listener of l with limits. Its connections have to be served by a server of this
// package. If they are too many, a new one takes the place of another, so that no client waits for one that
// holds its connection; which one, see [limitedListener.worstLocked].
func Limit(l net.Listener, c Connections) net.Listener { return newLimitedListener(l, c) }

func newLimitedListener(l net.Listener, c Connections) *limitedListener {
	return &limitedListener{
		Listener: l, limits: c, remote: quota.NewShares(int64(c.Max / 5 * 4)), userOf: network.UserOf,
		open: map[*limitedConn]struct{}{}, owned: map[owner]int{},
	}
}

type limitedListener struct {
	net.Listener
	limits Connections
	remote *quota.Shares // of the connections from other machines, by address
	userOf func(net.Conn) (uid uint32, ok bool)
	events atomic.Int64 // numbers the events on the connections, in order

	mu    sync.Mutex
	open  map[*limitedConn]struct{}
	owned map[owner]int // of open, by owner
}

// owner is the user of a process on this machine, or the address of another machine. The connections whose
// user is not known have one owner.
type owner struct {
	uid   uint32
	known bool // uid is
	peer  netip.Addr
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		x := &limitedConn{Conn: c, of: l}
		if peer := addressOf(c.RemoteAddr()); peer.IsValid() && !access.SameMachine(peer, addressOf(c.LocalAddr())) {
			x.owner.peer = peer
		} else {
			x.owner.uid, x.owner.known = l.userOf(c)
		}
		if x.remote() && !l.remote.Enter(x.owner.peer) {
			_ = c.Close() // nothing was sent
			if l.limits.Refused != nil {
				l.limits.Refused(c.RemoteAddr().String(), ErrTooManyConnections)
			}
			continue
		}
		l.admit(x)
		return x, nil
	}
}

// admit makes room for a connection.
func (l *limitedListener) admit(x *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owned[x.owner]++ // its owner's are the ones that give way, unless another has more
	if len(l.open) >= l.limits.Max {
		worst := l.worstLocked()
		l.removeLocked(worst)
		_ = worst.Conn.Close() // its server notices, and closes it too
	}
	x.touch()
	l.open[x] = struct{}{}
}

// worstLocked returns the connection to close for a new one: one of the owner that has most, which no one
// with fewer loses a place to. Of these it is the one on which nothing has happened for longest, with a
// request in progress only if all have one.
func (l *limitedListener) worstLocked() (worst *limitedConn) {
	most := 0
	for _, n := range l.owned {
		most = max(most, n)
	}
	for x := range l.open {
		switch {
		case l.owned[x.owner] < most:
		case worst == nil, worst.busy && !x.busy, worst.busy == x.busy && x.last.Load() < worst.last.Load():
			worst = x
		}
	}
	return worst
}

// removeLocked ends the count of a connection, once.
func (l *limitedListener) removeLocked(x *limitedConn) {
	if _, ok := l.open[x]; !ok {
		return
	}
	delete(l.open, x)
	if l.owned[x.owner]--; l.owned[x.owner] == 0 {
		delete(l.owned, x.owner)
	}
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	of    *limitedListener
	owner owner
	last  atomic.Int64 // the number of its last event
	left  sync.Once

	busy bool // a request is in progress; guarded by of.mu
}

// remote reports whether the connection comes from another machine.
func (c *limitedConn) remote() bool { return c.owner.peer.IsValid() }

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
		if c.remote() {
			c.of.remote.Leave(c.owner.peer)
		}
		c.of.mu.Lock()
		c.of.removeLocked(c)
		c.of.mu.Unlock()
	})
	return c.Conn.Close()
}

// limitedConnOf returns the connection that is below TLS, nil if it is not one of a limited listener.
func limitedConnOf(c net.Conn) *limitedConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	x, _ := c.(*limitedConn)
	return x
}

type ownerKey struct{}

// withOwner returns a context with the owner of a connection, for its requests.
func withOwner(ctx context.Context, c net.Conn) context.Context {
	if x := limitedConnOf(c); x != nil {
		ctx = context.WithValue(ctx, ownerKey{}, x.owner)
	}
	return ctx
}

// ownerOf returns the owner of the connection of a request.
func ownerOf(ctx context.Context) owner {
	o, _ := ctx.Value(ownerKey{}).(owner)
	return o
}

// noteState notes whether a connection has a request in progress. A header that is still to be read is none.
func noteState(c net.Conn, s http.ConnState) {
	x := limitedConnOf(c)
	if x == nil {
		return
	}
	x.of.mu.Lock()
	x.busy = s == http.StateActive || s == http.StateHijacked
	x.of.mu.Unlock()
}

func addressOf(a net.Addr) netip.Addr {
	if a, ok := a.(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
