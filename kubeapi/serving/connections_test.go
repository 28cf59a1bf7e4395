package serving

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/network"
)

// conn is a connection between two addresses.
type conn struct {
	net.Conn
	peer, own string
	closed    bool
}

func (c *conn) RemoteAddr() net.Addr { return tcpAddr(c.peer) }
func (c *conn) LocalAddr() net.Addr  { return tcpAddr(c.own) }
func (c *conn) Close() error         { c.closed = true; return nil }

func tcpAddr(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 40000} }

// queue is a listener of connections.
type queue []*conn

func (q *queue) Accept() (net.Conn, error) {
	if len(*q) == 0 {
		return nil, net.ErrClosed
	}
	c := (*q)[0]
	*q = (*q)[1:]
	return c, nil
}

func (q *queue) Close() error   { return nil }
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }

const maxRemote = maxConnections / 5 * 4

// offer offers connections to a listener, and returns those that it accepts.
func offer(t *testing.T, l *limitedListener, peer string, n int) (all []*limitedConn) {
	t.Helper()
	var offered []*conn
	for range n {
		offered = append(offered, &conn{peer: peer, own: "192.0.2.1"})
	}
	*l.Listener.(*queue) = append(queue{}, offered...) //nolint:forcetypeassert // these tests have no other
	for {
		c, err := l.Accept()
		if err != nil {
			return all
		}
		all = append(all, c.(*limitedConn)) //nolint:forcetypeassert // it accepts no others
	}
}

// TestConnectionsPerAddress: an address has at most half of the connections from elsewhere, and the rest is
// for this machine.
func TestConnectionsPerAddress(t *testing.T) {
	var refused []string
	l := newLimitedListener(&queue{}, Connections{Max: maxConnections, Refused: func(peer string, err error) {
		require.ErrorIs(t, err, ErrTooManyConnections)
		refused = append(refused, peer)
	}})
	first := offer(t, l, "192.0.2.2", maxRemote/2+10)
	require.Len(t, first, maxRemote/2, "an address takes half of the connections at most")
	require.Len(t, refused, 10)
	require.Equal(t, "192.0.2.2:40000", refused[0])
	require.Empty(t, offer(t, l, "::ffff:192.0.2.2", 5), "the same address")
	require.Len(t, offer(t, l, "192.0.2.3", 10), 10)
	for i := range 2000 {
		offer(t, l, fmt.Sprintf("198.51.100.%d", i%250), 1)
	}
	require.Equal(t, maxRemote, l.remote.Used())
	require.Empty(t, offer(t, l, "192.0.2.3", 1))
	require.Len(t, offer(t, l, "192.0.2.1", 60), 60, "from this machine")
	require.Len(t, offer(t, l, "127.0.0.1", 60), 60)
	for _, c := range first {
		require.NoError(t, c.Close())
		require.NoError(t, c.Close(), "a second Close")
	}
	require.Equal(t, maxRemote/2, l.remote.Used())
	require.Len(t, offer(t, l, "192.0.2.2", 1), 1)
}

// closedAt returns which connections were closed.
func closedAt(all []*limitedConn) (at []int) {
	for i, c := range all {
		if c.Conn.(*conn).closed { //nolint:forcetypeassert // see offer
			at = append(at, i)
		}
	}
	return at
}

// TestConnectionsMakeRoom: a new connection takes the place of the one that has been idle for longest; of
// one with a request only if all have one.
func TestConnectionsMakeRoom(t *testing.T) {
	l := newLimitedListener(&queue{}, Connections{Max: 5})
	all := offer(t, l, "127.0.0.1", 5)
	all[0].touch()
	noteState(all[1], http.StateActive)
	noteState(tls.Server(all[2], &tls.Config{}), http.StateActive)
	require.Len(t, offer(t, l, "127.0.0.1", 1), 1)
	require.Equal(t, []int{3}, closedAt(all))
	require.Len(t, offer(t, l, "127.0.0.1", 2), 2)
	require.Equal(t, []int{0, 3, 4}, closedAt(all))
	require.Len(t, l.open, 5)
	require.NoError(t, all[0].Close(), "its server closes it too")
	require.Len(t, l.open, 5)
	for c := range l.open {
		noteState(c, http.StateActive)
	}
	all[1].touch()
	require.Len(t, offer(t, l, "127.0.0.1", 1), 1)
	require.Equal(t, []int{0, 2, 3, 4}, closedAt(all), "the one on which nothing has happened for longest")
	for c := range l.open {
		require.NoError(t, c.Close())
	}
	require.Empty(t, l.open)
	require.Empty(t, l.owned)
}

// TestConnectionsPerOwner: whatever a user of this machine opens, with requests or without, no other user
// that has fewer connections loses one, and its new ones are accepted.
func TestConnectionsPerOwner(t *testing.T) {
	user := uint32(0)
	l := newLimitedListener(&queue{}, Connections{Max: maxConnections})
	l.userOf = func(net.Conn) (uint32, bool) { return user, user != 0 }
	connect := func(uid uint32, n int, s http.ConnState) []*limitedConn {
		user = uid
		all := offer(t, l, "127.0.0.1", n)
		require.Len(t, all, n)
		for _, c := range all {
			noteState(c, s)
		}
		return all
	}
	idle, busy := connect(1, 10, http.StateIdle), connect(1, 10, http.StateActive)
	remote := offer(t, l, "192.0.2.2", 30)
	for _, s := range []http.ConnState{http.StateActive, http.StateIdle, http.StateNew} {
		connect(2, 3*maxConnections, s)
		connect(0, 3*maxConnections, s) // users that are not known: one
		require.Len(t, l.open, maxConnections)
		connect(1, 10, http.StateNew)
	}
	require.Empty(t, closedAt(idle))
	require.Empty(t, closedAt(busy))
	require.Empty(t, closedAt(remote))
	require.Equal(t, map[owner]int{
		{uid: 1, known: true}: 50, {peer: netip.MustParseAddr("192.0.2.2")}: 30, {uid: 2, known: true}: 280, {}: 280,
	}, l.owned)
	connect(1, maxConnections, http.StateActive)
	require.NotEmpty(t, closedAt(idle), "one that has most gives way itself, first those without a request")
	require.Empty(t, closedAt(remote))
}

// TestClientCertificatesLimit: a client can't make a connection hold many certificates.
func TestClientCertificatesLimit(t *testing.T) {
	require.NoError(t, limitCertificates(nil, nil))
	require.NoError(t, limitCertificates([][]byte{make([]byte, 2000), make([]byte, 2000)}, nil))
	require.Error(t, limitCertificates([][]byte{make([]byte, maxCertificatesBytes+1)}, nil))
	require.Error(t, limitCertificates(make([][]byte, maxCertificates+1), nil))
	c, _ := ensureAt(t, t.TempDir(), now)
	l, err := c.Listen("127.0.0.1:0", Files{}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	own, err := c.certificate("127.0.0.1")
	require.NoError(t, err)
	for _, n := range []int{1, 2 * maxCertificates} {
		chain := tls.Certificate{Certificate: slices.Repeat(own.Certificate[:1], n), PrivateKey: own.PrivateKey}
		served := make(chan error, 1)
		go func() {
			s, err := l.Accept()
			if err == nil {
				err = s.(*tls.Conn).Handshake() //nolint:forcetypeassert // the listener is one of TLS
				_ = s.Close()                   // its client may have closed it
			}
			served <- err
		}()
		client, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{
			InsecureSkipVerify:   true, //nolint:gosec // the server is ours
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &chain, nil },
		})
		if err == nil {
			_ = client.Close() // the server may have closed it
		}
		if err := <-served; n == 1 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "certificates")
		}
	}
}

// TestOwnerOfRequest: a request has the user of its connection, below TLS too.
func TestOwnerOfRequest(t *testing.T) {
	of := make(chan owner, 1)
	_, config := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { of <- ownerOf(r.Context()) }))
	answer, err := client(t, config).Get(config.Host + "/api")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	one, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer one.Close()
	other, err := l.Accept()
	require.NoError(t, err)
	defer other.Close()
	want := owner{}
	want.uid, want.known = network.UserOf(other) // not known on every system
	require.Equal(t, want, <-of)
}
