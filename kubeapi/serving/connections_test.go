package serving

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
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

// TestConnectionsPerAddress: an address has at most half of the connections from elsewhere, and the rest is
// for this machine.
func TestConnectionsPerAddress(t *testing.T) {
	const own = "192.0.2.1"
	var q queue
	var refused []string
	l := newFairListener(&q, func(peer string, err error) {
		require.ErrorIs(t, err, ErrTooManyConnections)
		refused = append(refused, peer)
	})
	// accepted offers connections, and returns those that are accepted.
	accepted := func(peer string, n int) (all []net.Conn) {
		var offered []*conn
		for range n {
			offered = append(offered, &conn{peer: peer, own: own})
		}
		q = append(queue{}, offered...)
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			all = append(all, c)
		}
		closed := 0
		for _, c := range offered {
			if c.closed {
				closed++
			}
		}
		require.Equal(t, n-len(all), closed)
		return all
	}
	first := accepted("192.0.2.2", maxRemote/2+10)
	require.Len(t, first, maxRemote/2, "an address takes half of the connections at most")
	require.Len(t, refused, 10)
	require.Equal(t, "192.0.2.2:40000", refused[0])
	require.Len(t, accepted("::ffff:192.0.2.2", 5), 0, "the same address")
	require.Len(t, accepted("192.0.2.3", 10), 10)
	require.Len(t, accepted(own, maxConnections), maxConnections, "from this machine")
	require.Len(t, accepted("127.0.0.1", maxConnections), maxConnections)
	for i := range 2000 {
		accepted(fmt.Sprintf("198.51.100.%d", i%250), 1)
	}
	require.Equal(t, maxRemote, l.remote.Used())
	require.Empty(t, accepted("192.0.2.3", 1))
	require.Len(t, accepted("127.0.0.1", 10), 10)
	for _, c := range first {
		require.NoError(t, c.Close())
		require.NoError(t, c.Close(), "a second Close")
	}
	require.Equal(t, maxRemote/2, l.remote.Used())
	require.Len(t, accepted("192.0.2.2", 1), 1)
}
