package kubeapi

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// link is the network between an agent and the kube-apiserver, which can be cut while the server
// keeps running for other tests. To the agent it looks as if the server had stopped: connections are
// reset, then refused. With several targets it is a Service: each connection goes to one that accepts it.
type link struct {
	address string
	targets []string

	mu       sync.Mutex
	breaks   []int64      // a connection breaks after so many bytes of the target, then another one
	received int64        // bytes of the targets
	listener net.Listener // nil while the link is cut
	conns    map[net.Conn]struct{}
	running  sync.WaitGroup
}

// newLink returns a working link to the targets, until the end of the test. No other program takes its
// address while it is cut.
func newLink(t *testing.T, targets ...string) *link {
	t.Helper()
	l := &link{address: freeAddress(t), targets: targets, conns: map[net.Conn]struct{}{}}
	l.restore(t)
	t.Cleanup(l.cut)
	return l
}

// restore lets connections through, at the same address as before.
func (l *link) restore(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	require.NoError(t, err)
	l.mu.Lock()
	l.listener = listener
	l.mu.Unlock()
	l.running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.running.Go(func() { l.serve(listener, c) })
		}
	})
}

// cut ends all connections and refuses new ones.
func (l *link) cut() {
	l.mu.Lock()
	if l.listener != nil {
		_ = l.listener.Close()
		l.listener = nil
	}
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
}

// serve copies between a client and the target until one of them, or the link, ends.
func (l *link) serve(listener net.Listener, client net.Conn) {
	defer client.Close()
	server := l.dial()
	if server == nil {
		return
	}
	defer server.Close()
	if !l.keep(listener, client, server) {
		return
	}
	var copying sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		var source io.Reader = from
		if from == server {
			source = l.limited(server)
		}
		copying.Go(func() {
			_, _ = io.Copy(to, source) // an error is expected: tests cut connections
			_, _ = from.Close(), to.Close()
		})
	}
	copying.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, client)
	delete(l.conns, server)
}

// breakAfter has a connection break after so many bytes of the target, then another one, and so on.
func (l *link) breakAfter(bytes ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaks = bytes
}

// limited returns what comes from a target, until the connection breaks.
func (l *link) limited(server io.Reader) io.Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.breaks) > 0 {
		server = &breaking{link: l, server: server, left: l.breaks[0]}
	}
	return io.TeeReader(server, (*received)(l))
}

// breaking is a connection that breaks.
type breaking struct {
	link   *link
	server io.Reader
	left   int64 // bytes
}

// Read implements [io.Reader].
func (b *breaking) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.link.mu.Lock()
		defer b.link.mu.Unlock()
		b.link.breaks = b.link.breaks[min(1, len(b.link.breaks)):]
		return 0, io.EOF
	}
	n, err := b.server.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// received counts the bytes that a link gets from its targets.
type received link

// Write implements [io.Writer].
func (r *received) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received += int64(len(p))
	return len(p), nil
}

// traffic returns how many bytes came from the targets, and how many connections are still to break.
func (l *link) traffic() (bytes int64, breaks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.received, len(l.breaks)
}

// dial connects to one of the targets; nil if none accepts.
func (l *link) dial() net.Conn {
	for _, i := range rand.Perm(len(l.targets)) { //nolint:gosec // choices of a test
		if c, err := net.Dial("tcp", l.targets[i]); err == nil {
			return c
		}
	}
	return nil
}

// keep registers connections, to be closed with the link. It returns false if the listener that
// accepted them is closed.
func (l *link) keep(listener net.Listener, conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != listener {
		return false
	}
	for _, c := range conns {
		l.conns[c] = struct{}{}
	}
	return true
}
