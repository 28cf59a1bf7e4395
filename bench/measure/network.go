package measure

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// Network is a proxy between clients and one server that counts the bytes from the server. It passes
// bytes on unchanged, so that TLS is end to end, and lets the kernel copy them.
type Network struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	open   map[*net.TCPConn]*net.TCPConn // the server's connection, and the client's
	ended  Traffic                       // of closed connections
	closed bool
}

// Traffic is the data of a network, in bytes of TCP payload. The beginning and the end of a
// connection may count as one byte each.
type Traffic struct {
	Received    int64 `json:"receivedBytes"` // by the clients, from the server
	Sent        int64 `json:"sentBytes"`
	Connections int   `json:"connections"`
}

// Since returns the traffic after earlier.
func (t Traffic) Since(earlier Traffic) Traffic {
	return Traffic{t.Received - earlier.Received, t.Sent - earlier.Sent, t.Connections - earlier.Connections}
}

// NewNetwork listens on a loopback port for connections to the address target.
func NewNetwork(target string) (*Network, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	n := &Network{listener: l, target: target, open: make(map[*net.TCPConn]*net.TCPConn)}
	n.wg.Go(n.accept)
	return n, nil
}

// Address returns the address for clients.
func (n *Network) Address() string { return n.listener.Addr().String() }

// Close closes all connections.
func (n *Network) Close() error {
	n.mu.Lock()
	n.closed = true
	err := n.listener.Close()
	for server, client := range n.open {
		server.Close() // data in flight is lost on purpose
		client.Close()
	}
	n.mu.Unlock()
	n.wg.Wait()
	return err
}

// Traffic returns the traffic so far.
func (n *Network) Traffic() (Traffic, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	sum := n.ended
	for c := range n.open {
		t, err := traffic(c)
		if err != nil {
			return Traffic{}, err
		}
		sum.Received += t.Received
		sum.Sent += t.Sent
	}
	return sum, nil
}

// traffic reads the kernel's counters of one connection.
func traffic(c *net.TCPConn) (Traffic, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Traffic{}, fmt.Errorf("network: %w", err)
	}
	var info *unix.TCPInfo
	var failed error
	err = raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(err, failed); err != nil {
		return Traffic{}, fmt.Errorf("network: %w", err)
	}
	return Traffic{Received: int64(info.Bytes_received), Sent: int64(info.Bytes_acked)}, nil
}

func (n *Network) accept() {
	for {
		c, err := n.listener.Accept()
		if err != nil {
			return // closed
		}
		n.wg.Go(func() { n.carry(c.(*net.TCPConn)) })
	}
}

// carry copies in both directions until both ends are done.
func (n *Network) carry(client *net.TCPConn) {
	defer client.Close()
	c, err := net.Dial("tcp", n.target)
	if err != nil {
		return // the client sees its connection end
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	if !n.keep(server, client) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { pipe(server, client) })
	wg.Go(func() { pipe(client, server) })
	wg.Wait()
	n.end(server)
}

func (n *Network) keep(server, client *net.TCPConn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.open[server] = client
	n.ended.Connections++
	return true
}

func (n *Network) end(server *net.TCPConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t, err := traffic(server); err == nil { // the connection is open, so this never fails
		n.ended.Received += t.Received
		n.ended.Sent += t.Sent
	}
	delete(n.open, server)
}

// pipe copies until one end is done, and closes both.
func pipe(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from) // errors concern the ends
	_ = to.CloseWrite()
	_ = from.CloseRead()
}
