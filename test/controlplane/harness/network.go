package harness

import (
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane"
)

// Network is the way to a server, which can be cut while the server keeps running. A client sees a cut network as a
// server that has stopped: connections are reset, then refused. With several targets it is a Service: each connection
// goes to one that accepts it.
type Network struct {
	Address    string // stays reserved while the network is cut
	Kubeconfig string // leads through the network, if [NetworkOf] made it

	t        *testing.T
	targets  []string
	received atomic.Int64 // bytes

	mu       sync.Mutex
	listener net.Listener // nil while the network is cut
	conns    map[net.Conn]struct{}
	silent   bool // connections are accepted, and nothing is sent
	latency  time.Duration
	breaks   []int64 // a connection breaks after so many bytes of the target, then another one
	gate     *gate
	running  sync.WaitGroup
}

// gate is passed by the connections made since it was created.
type gate struct {
	shut atomic.Bool   // data is dropped
	end  chan struct{} // closed with the connections
}

// NewNetwork returns a working network to the targets.
func NewNetwork(t *testing.T, targets ...string) *Network {
	t.Helper()
	n := NetworkAt(t, FreeAddress(t), targets...)
	n.Up()
	return n
}

// NetworkOf returns a working network to the server of a kubeconfig, with a copy that leads through the network.
func NetworkOf(t *testing.T, kubeconfig string) *Network {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	require.NoError(t, err)
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	server, err := url.Parse(cluster.Server)
	require.NoError(t, err)
	n := NewNetwork(t, server.Host)
	cluster.Server = "https://" + n.Address
	n.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, n.Kubeconfig))
	return n
}

// NetworkAt returns a network that is cut, at an address of the caller's.
func NetworkAt(t *testing.T, address string, targets ...string) *Network {
	n := &Network{Address: address, t: t, targets: targets, conns: map[net.Conn]struct{}{}}
	n.gate = &gate{end: make(chan struct{})}
	t.Cleanup(n.Down)
	return n
}

// Up lets connections through.
func (n *Network) Up() { n.open(false) }

// Hang accepts connections and never answers.
func (n *Network) Hang() { n.open(true) }

func (n *Network) open(silent bool) {
	n.t.Helper()
	n.Down()
	l, err := net.Listen("tcp", n.Address)
	require.NoError(n.t, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener, n.silent = l, silent
	n.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.running.Go(func() { n.serve(l, c) })
		}
	})
}

// Down ends all connections and refuses new ones.
func (n *Network) Down() {
	n.mu.Lock()
	if n.listener != nil {
		_ = controlplane.CloseListener(n.listener)
		n.listener = nil
	}
	for c := range n.conns {
		_ = c.Close()
	}
	close(n.gate.end)
	n.gate = &gate{end: make(chan struct{})}
	n.mu.Unlock()
	n.running.Wait()
}

// Lose drops all further data of the existing connections, without a signal to either end. New connections work.
func (n *Network) Lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gate.shut.Store(true)
	n.gate = &gate{end: n.gate.end}
}

// Slow gives new connections a latency in each direction, and loses one packet in fifty, which is sent again after
// three latencies, as TCP does.
func (n *Network) Slow(latency time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency = latency
}

// BreakAfter has a connection break after so many bytes of the target, then another one, and so on.
func (n *Network) BreakAfter(bytes ...int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.breaks = bytes
}

// Breaks returns how many connections are still to break.
func (n *Network) Breaks() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.breaks)
}

// Received returns how many bytes came from the targets.
func (n *Network) Received() int64 { return n.received.Load() }

// serve copies between a client and a target until one of them, or the network, ends.
func (n *Network) serve(l net.Listener, client net.Conn) {
	defer client.Close()
	g := n.keep(l, client)
	if g == nil {
		return
	}
	defer n.forget(client)
	if n.silent {
		<-g.end
		return
	}
	server := n.dial()
	if server == nil {
		return
	}
	defer server.Close()
	if n.keep(l, server) == nil {
		return
	}
	defer n.forget(server)
	answers := &answers{Conn: server, network: n, gate: g, left: -1}
	n.mu.Lock()
	if len(n.breaks) > 0 {
		answers.left = n.breaks[0]
	}
	latency := n.latency
	n.mu.Unlock()
	var copying sync.WaitGroup
	pipe := func(to net.Conn, from io.ReadCloser) {
		// An error is expected: tests cut connections.
		if latency > 0 {
			copySlowly(to, from, latency)
		} else {
			_, _ = io.Copy(to, from)
		}
		_, _ = client.Close(), server.Close()
	}
	copying.Go(func() { pipe(client, answers) })
	copying.Go(func() { pipe(server, passing{client, g}) })
	copying.Wait()
}

// dial connects to one of the targets; nil if none accepts.
func (n *Network) dial() net.Conn {
	for _, i := range rand.Perm(len(n.targets)) { //nolint:gosec // choices of a test
		if c, err := net.Dial("tcp", n.targets[i]); err == nil {
			return c
		}
	}
	return nil
}

// packet is data on a slow way.
type packet struct {
	data []byte
	due  time.Time
}

// copySlowly copies with a latency, and with losses, see [Network.Slow].
func copySlowly(to io.Writer, from io.ReadCloser, latency time.Duration) {
	way := make(chan packet, 1000)
	go func() {
		defer close(way)
		for due := time.Now(); ; {
			p := packet{data: make([]byte, 1400)}
			n, err := from.Read(p.data)
			if err != nil {
				return
			}
			took := latency
			if rand.IntN(50) == 0 { //nolint:gosec // choices of a test
				took = 4 * latency
			}
			if at := time.Now().Add(took); at.After(due) { // packets arrive in order
				due = at
			}
			p.data, p.due = p.data[:n], due
			way <- p
		}
	}()
	for p := range way {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			_ = from.Close() // so that the way ends
		}
	}
}

// keep registers a connection, to be closed with the network. It returns nil if the listener that accepted the
// connection is closed.
func (n *Network) keep(l net.Listener, c net.Conn) *gate {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener != l {
		return nil
	}
	n.conns[c] = struct{}{}
	return n.gate
}

func (n *Network) forget(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// passing reads the data that a gate lets through.
type passing struct {
	net.Conn
	gate *gate
}

// Read blocks until the end once the gate is shut.
func (p passing) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if p.gate.shut.Load() {
		<-p.gate.end
		return 0, net.ErrClosed
	}
	return n, err
}

// answers reads the data of a target, counts it, and ends when the connection breaks.
type answers struct {
	net.Conn
	network *Network
	gate    *gate
	left    int64 // bytes; negative for all
}

// Read implements [io.Reader].
func (a *answers) Read(b []byte) (int, error) {
	if a.left == 0 {
		a.network.mu.Lock()
		defer a.network.mu.Unlock()
		a.network.breaks = a.network.breaks[min(1, len(a.network.breaks)):]
		return 0, io.EOF
	}
	if a.left > 0 {
		b = b[:min(int64(len(b)), a.left)]
	}
	n, err := passing{a.Conn, a.gate}.Read(b)
	if a.left > 0 {
		a.left -= int64(n)
	}
	a.network.received.Add(int64(n))
	return n, err
}
