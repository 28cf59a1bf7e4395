package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/logging/logtest"
)

// pipes is a listener of connections in memory, which work with the time of a bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p <- server
	return client
}

// inBubble runs fn with a server of h over TLS, in a bubble.
func inBubble(t *testing.T, h http.Handler, fn func(t *testing.T, p pipes)) {
	t.Helper()
	serveInBubble(t, func() *http.Server { return NewServer(h, slog.New(slog.DiscardHandler)) }, fn)
}

func serveInBubble(t *testing.T, newServer func() *http.Server, fn func(t *testing.T, p pipes)) {
	t.Helper()
	c, _ := ensureAt(t, t.TempDir(), now)
	certificate, err := c.certificate("127.0.0.1")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		p := make(pipes)
		s := newServer()
		served := make(chan error, 1)
		go func() {
			served <- s.Serve(tls.NewListener(p, &tls.Config{
				Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			}))
		}()
		defer func() {
			require.NoError(t, s.Close())
			require.ErrorIs(t, <-served, http.ErrServerClosed)
			time.Sleep(time.Minute) // for what net/http still has to end
		}()
		fn(t, p)
	})
}

// secure makes a client's connection one of TLS.
func secure(t *testing.T, c net.Conn, proto string) net.Conn {
	t.Helper()
	s := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}}) //nolint:gosec // in memory
	require.NoError(t, s.Handshake())
	require.Equal(t, proto, s.ConnectionState().NegotiatedProtocol)
	return s
}

// h2 is an HTTP/2 connection whose client may do anything.
type h2 struct {
	*http2.Framer
	conn   net.Conn
	header bytes.Buffer
	enc    *hpack.Encoder
}

func newH2(t *testing.T, p pipes) *h2 {
	t.Helper()
	c := &h2{conn: secure(t, p.dial(), "h2")}
	c.Framer = http2.NewFramer(c.conn, c.conn)
	c.enc = hpack.NewEncoder(&c.header)
	_, err := io.WriteString(c.conn, http2.ClientPreface)
	require.NoError(t, err)
	// The connection has no buffer: what the server sends is read beside.
	return c
}

// fields returns the header of a GET.
func (c *h2) fields() []byte {
	c.header.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", "/api/v1/pods"}} {
		_ = c.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to a buffer
	}
	return bytes.Clone(c.header.Bytes())
}

// ended returns after how long the server ends a connection that a client writes to with write.
func ended(t *testing.T, c net.Conn, write func() error) time.Duration {
	t.Helper()
	began := time.Now()
	read := make(chan time.Duration, 1)
	go func() {
		_, _ = io.Copy(io.Discard, c) // until it ends, in any way
		read <- time.Since(began)
	}()
	if err := write(); err != nil {
		require.Truef(t, errors.Is(err, io.ErrClosedPipe) || strings.Contains(err.Error(), "closed"), "%v", err)
	}
	after := <-read
	_ = c.Close() // the server has cut it
	return after
}

// TestSlowClients checks that a client which does not go on with what it has begun is cut.
func TestSlowClients(t *testing.T) {
	head := "GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n"
	watch := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	half := func(t *testing.T, p pipes, sent string) time.Duration {
		c := secure(t, p.dial(), "http/1.1")
		return ended(t, c, func() error {
			_, err := io.WriteString(c, sent)
			return errors.Join(err, c.(*tls.Conn).CloseWrite()) //nolint:forcetypeassert // see secure
		})
	}
	drip := func(c net.Conn, before, each string) func() error {
		return func() error {
			_, err := io.WriteString(c, before)
			for err == nil {
				time.Sleep(time.Second)
				_, err = io.WriteString(c, each)
			}
			return err
		}
	}
	for _, tc := range []struct {
		name string
		fn   func(t *testing.T, p pipes) time.Duration
		want time.Duration
	}{
		{"no handshake", func(t *testing.T, p pipes) time.Duration {
			c := p.dial()
			return ended(t, c, func() error { return nil })
		}, readHeaderTimeout},
		{"no request", func(t *testing.T, p pipes) time.Duration {
			c := secure(t, p.dial(), "http/1.1")
			return ended(t, c, func() error { return nil })
		}, readHeaderTimeout},
		{"slow header", func(t *testing.T, p pipes) time.Duration {
			c := secure(t, p.dial(), "http/1.1")
			return ended(t, c, drip(c, head, "X: y\r\n"))
		}, readHeaderTimeout},
		{"slow body", func(t *testing.T, p pipes) time.Duration {
			c := secure(t, p.dial(), "http/1.1")
			return ended(t, c, drip(c, head+"Content-Length: 100\r\n\r\n", "x"))
		}, readBodyTimeout},
		{"slow chunks", func(t *testing.T, p pipes) time.Duration {
			c := secure(t, p.dial(), "http/1.1")
			return ended(t, c, drip(c, head+"Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"))
		}, readBodyTimeout},
		{"half-closed without a request", func(t *testing.T, p pipes) time.Duration { return half(t, p, "") }, 0},
		{"half-closed in its header", func(t *testing.T, p pipes) time.Duration { return half(t, p, head) }, 0},
		{"half-closed in its body", func(t *testing.T, p pipes) time.Duration {
			return half(t, p, head+"Content-Length: 100\r\n\r\nx")
		}, 0},
		{"half-closed in its watch", func(t *testing.T, p pipes) time.Duration { return half(t, p, head+"\r\n") }, 0},
		{"no request over HTTP/2", func(t *testing.T, p pipes) time.Duration {
			c := newH2(t, p)
			return ended(t, c.conn, func() error { return c.WriteSettings() })
		}, idleTimeout},
		{"half a header over HTTP/2", func(t *testing.T, p pipes) time.Duration {
			c := newH2(t, p)
			return ended(t, c.conn, func() error {
				fields := c.fields()
				return errors.Join(c.WriteSettings(), c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields[:5], EndStream: true}))
			})
		}, idleTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, watch, func(t *testing.T, p pipes) {
				require.InDelta(t, tc.want.Seconds(), tc.fn(t, p).Seconds(), 2.1)
			})
		})
	}
}

// TestHalfOpenStream checks that a stream whose client never ends its request is answered with 408, and
// that the connection's other streams go on.
func TestHalfOpenStream(t *testing.T) {
	inBubble(t, pods, func(t *testing.T, p pipes) {
		c := newH2(t, p)
		answers := make(chan string, 10)
		c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		go func() {
			defer close(answers)
			for {
				f, err := c.ReadFrame()
				if err != nil {
					return
				}
				if h, ok := f.(*http2.MetaHeadersFrame); ok {
					answers <- fmt.Sprint(h.StreamID, " ", h.PseudoValue("status"))
				}
			}
		}()
		require.NoError(t, c.WriteSettings())
		began := time.Now()
		require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.fields(), EndHeaders: true}))
		require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: c.fields(), EndHeaders: true, EndStream: true}))
		require.Equal(t, "3 200", <-answers)
		require.Zero(t, time.Since(began))
		require.Equal(t, "1 408", <-answers)
		require.Equal(t, readBodyTimeout, time.Since(began))
		require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: c.fields(), EndHeaders: true, EndStream: true}))
		require.Equal(t, "5 200", <-answers)
		require.NoError(t, c.conn.Close())
		for range answers { // until the reader has ended
		}
	})
}

// TestAnswerReaderStops checks that an answer that its client does not read ends.
func TestAnswerReaderStops(t *testing.T) {
	var over time.Duration
	large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		began := time.Now()
		_, err := w.Write(make([]byte, 8<<20))
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil {
			over = time.Since(began)
		}
	})
	request := func(t *testing.T, p pipes, settings ...http2.Setting) *h2 {
		c := newH2(t, p)
		require.NoError(t, c.WriteSettings(settings...))
		require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.fields(), EndHeaders: true, EndStream: true}))
		return c
	}
	for _, tc := range []struct {
		name string
		ask  func(t *testing.T, p pipes) net.Conn
	}{
		{"HTTP/1.1", func(t *testing.T, p pipes) net.Conn {
			c := secure(t, p.dial(), "http/1.1")
			_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
			require.NoError(t, err)
			return c
		}},
		{"HTTP/2 without a window", func(t *testing.T, p pipes) net.Conn {
			c := request(t, p)
			go func() { _, _ = io.Copy(io.Discard, c.conn) }() // until the end
			return c.conn
		}},
		{"HTTP/2", func(t *testing.T, p pipes) net.Conn {
			c := request(t, p, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
			require.NoError(t, c.WriteWindowUpdate(0, 1<<30))
			_, err := io.CopyN(io.Discard, c.conn, 1<<20)
			require.NoError(t, err)
			return c.conn
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over = 0
			inBubble(t, large, func(t *testing.T, p pipes) {
				c := tc.ask(t, p)
				time.Sleep(2 * writeTimeout)
				synctest.Wait()
				require.InDelta(t, writeTimeout.Seconds(), over.Seconds(), 6) // TLS may add 5 s
				_ = c.Close()
			})
		})
	}
}

// TestAnswerOutlastsBody checks that a request with a body may take longer than its body.
func TestAnswerOutlastsBody(t *testing.T) {
	long := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(writeTimeout - time.Second):
			_, _ = io.WriteString(w, "ok")
		case <-r.Context().Done():
			w.WriteHeader(http.StatusGone)
		}
	})
	inBubble(t, long, func(t *testing.T, p pipes) {
		for _, proto := range []string{"http/1.1", "h2"} {
			c := secure(t, p.dial(), proto)
			dialed := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }, ForceAttemptHTTP2: true}
			answer, err := (&http.Client{Transport: dialed}).Post("https://localhost/", "text/plain", io.LimitReader(strings.NewReader("body"), 3))
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, answer.StatusCode)
			require.NoError(t, answer.Body.Close())
			dialed.CloseIdleConnections()
		}
	})
}

// TestStreamsPerConnection checks how many requests one HTTP/2 connection may have at once, and that
// hundreds of them are served.
func TestStreamsPerConnection(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	full, release := make(chan struct{}), make(chan struct{})
	count := func(more int) {
		mu.Lock()
		defer mu.Unlock()
		now += more
		if now > most {
			most = now
			if most == maxStreams { // once: now comes back to it when the first requests have ended
				close(full)
			}
		}
	}
	_, config := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		count(1)
		<-release
		count(-1)
	}))
	address, err := url.Parse(config.Host)
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", address.Host, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // the server is ours
	require.NoError(t, err)
	c, err := (&http2.Transport{StrictMaxConcurrentStreams: true}).NewClientConn(conn) //nolint:staticcheck // the other one has no strict limit of streams
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 3 * maxStreams {
		wg.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
			if err == nil {
				r.Header.Set("Authorization", "Bearer "+config.BearerToken)
				var answer *http.Response
				if answer, err = c.RoundTrip(r); err == nil {
					err = answer.Body.Close()
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-full
	close(release)
	wg.Wait()
	require.Equal(t, maxStreams, most)
	require.NoError(t, c.Close())
}

// TestRequestBodyLimit checks that a body of a request does not matter, and that one that is too large
// is refused without a request.
func TestRequestBodyLimit(t *testing.T) {
	inBubble(t, pods, func(t *testing.T, p pipes) {
		for _, tc := range []struct {
			name, rest, status string
		}{
			{"none", "\r\n", "200 OK"},
			{"length", "Content-Length: 5\r\n\r\nhello", "200 OK"},
			{"chunks", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "200 OK"},
			{"too large", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", maxBodyBytes+1, strings.Repeat("x", maxBodyBytes+1)), "413 Request Entity Too Large"},
			{"huge length", "Content-Length: 9223372036854775807\r\n\r\n" + strings.Repeat("x", maxBodyBytes+1), "413 Request Entity Too Large"},
			{"length overflows", "Content-Length: 9223372036854775808\r\n\r\n", "400 Bad Request"},
			{"length and chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "200 OK"},
			{"bad chunks", "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "408 Request Timeout"},
			{"NUL in a header", "X: \x00\r\n\r\n", "400 Bad Request"},
		} {
			c := secure(t, p.dial(), "http/1.1")
			go func() { _, _ = io.WriteString(c, "GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n"+tc.rest) }()
			line := make([]byte, len("HTTP/1.1 "+tc.status))
			_, err := io.ReadFull(c, line)
			require.NoError(t, err, tc.name)
			require.Equal(t, "HTTP/1.1 "+tc.status, string(line), tc.name)
			_ = c.Close() // the server may have cut it
		}
	})
}

// TestRequestBodyReachesHandler checks that a handler gets bodies, of any size, and that one which it
// does not read is cut in time, so that no client keeps a connection.
func TestRequestBodyReachesHandler(t *testing.T) {
	got := make(chan int64, 1)
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			n, _ := io.Copy(io.Discard, r.Body)
			got <- n
		}
	})
	serveInBubble(t, func() *http.Server { return NewBodyServer(h, slog.New(slog.DiscardHandler)) }, func(t *testing.T, p pipes) {
		c := secure(t, p.dial(), "http/1.1")
		_, err := fmt.Fprintf(c, "POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", 2*maxBodyBytes, strings.Repeat("x", 2*maxBodyBytes))
		require.NoError(t, err)
		require.EqualValues(t, 2*maxBodyBytes, <-got)
		_ = c.Close()
		c = secure(t, p.dial(), "http/1.1")
		after := ended(t, c, func() error {
			_, err := io.WriteString(c, "POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
			return err
		})
		require.InDelta(t, readBodyTimeout.Seconds(), after.Seconds(), 6)
	})
}

// TestNoSecretInLog checks what is logged of clients that fail in all ways: no token.
func TestNoSecretInLog(t *testing.T) {
	var logged logtest.Buffer
	c, _ := ensureAt(t, t.TempDir(), now)
	l, err := c.Listen("127.0.0.1:0", Files{}, nil)
	require.NoError(t, err)
	s := NewServer(Authenticate(access.NewAuthenticator(access.AuthenticatorOptions{Token: c.Token}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") })), slog.New(slog.NewTextHandler(&logged, nil)))
	run(t, s, l)
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + c.Token + "\r\n\r\n",
		"GET / HTTP/1.1\r\nAuthorization: Bearer " + c.Token + "\x00\r\n\r\n",
		"GET / HTTP/9\r\nAuthorization: Bearer " + c.Token + "\r\n\r\n",
		"Authorization: Bearer " + c.Token + "\r\n\r\n",
	} {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the server is ours
		require.NoError(t, err)
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, conn) // until the server ends it
		_ = conn.Close()
	}
	plain, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(plain, "GET / HTTP/1.1\r\nAuthorization: Bearer "+c.Token+"\r\n\r\n")
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, plain)
	require.NoError(t, plain.Close())
	require.Contains(t, logged.String(), "broken", "the panic is logged, and the server goes on")
	require.NotContains(t, logged.String(), c.Token)
	require.NotContains(t, strings.ToLower(logged.String()), "authorization")
}

// TestManyConnections checks that thousands of connections that do nothing, beyond the limit, end and
// leave nothing behind.
func TestManyConnections(t *testing.T) {
	_, config := serve(t, pods)
	address, err := url.Parse(config.Host)
	require.NoError(t, err)
	before, used := descriptors(t), memory()
	var all []net.Conn
	for range 2000 {
		c, err := net.Dial("tcp", address.Host)
		require.NoError(t, err)
		all = append(all, c)
	}
	require.Eventually(t, func() bool { return descriptors(t) == before+len(all)+maxConnections }, time.Minute, time.Millisecond, "the oldest are closed")
	require.Less(t, (memory()-used)/maxConnections, int64(32<<10), "of each that is served, with those of the test")
	began := time.Now()
	answer, err := client(t, config).Get(config.Host + "/api/v1/pods")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.NoError(t, answer.Body.Close())
	require.Less(t, time.Since(began), 5*time.Second, "a client beside them is served at once, not after readHeaderTimeout")
	for _, c := range all {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { return descriptors(t) <= before+2 }, time.Minute, time.Millisecond)
}

// memory returns how many bytes the heap and the stacks take.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse) //nolint:gosec // far below
}

func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}
