package forward

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo changes the protocol of a connection, and returns what comes until it ends.
func echo(protocol string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Header.Get("Upgrade") != protocol || r.Header.Get("Connection") != "Upgrade" {
			http.Error(w, fmt.Sprint(r.Proto, r.Header), http.StatusBadRequest)
			return
		}
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprintf(buffer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: v5\r\nSec-Websocket-Accept: x\r\n\r\nhello ", protocol)
		_ = buffer.Flush()
		_, _ = io.Copy(conn, conn)
		_, _ = io.WriteString(conn, "bye")
	}
}

// upgrade opens a connection whose protocol changes, and reads the answer's header and greeting.
func upgrade(t *testing.T, s *site, method, protocol string) (io.ReadWriteCloser, *bufio.Reader) {
	t.Helper()
	c := dial(t, s.proxy)
	_, err := fmt.Fprintf(c, "%s /api/v1/namespaces/a/pods/b/exec?command=sh HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\n"+
		"Upgrade: %s\r\nX-Stream-Protocol-Version: v5.channel.k8s.io\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n", method, token, protocol)
	require.NoError(t, err)
	buffer := bufio.NewReader(c)
	a, err := http.ReadResponse(buffer, nil) //nolint:bodyclose // the body is the connection
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, a.StatusCode)
	require.Equal(t, protocol, a.Header.Get("Upgrade"))
	require.Equal(t, "v5", a.Header.Get("X-Stream-Protocol-Version"))
	greeting := make([]byte, len("hello "))
	_, err = io.ReadFull(buffer, greeting)
	require.NoError(t, err)
	require.Equal(t, "hello ", string(greeting))
	return c, buffer
}

// TestUpgrade: a connection that changes its protocol passes bytes both ways, at once, and ends in each
// direction by itself.
func TestUpgrade(t *testing.T) {
	for _, tc := range []struct{ method, protocol string }{{"POST", "SPDY/3.1"}, {"GET", "websocket"}} {
		t.Run(tc.protocol, func(t *testing.T) {
			s := newSite(t, echo(tc.protocol))
			c, buffer := upgrade(t, s, tc.method, tc.protocol)
			for i := range 100 {
				text := fmt.Sprintf("message %d\x00\xff\n", i)
				_, err := io.WriteString(c, text)
				require.NoError(t, err)
				got := make([]byte, len(text))
				_, err = io.ReadFull(buffer, got)
				require.NoError(t, err)
				require.Equal(t, text, string(got))
			}
			require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
			rest, err := io.ReadAll(buffer)
			require.NoError(t, err)
			require.Equal(t, "bye", string(rest))
		})
	}
}

// TestUpgradeRefused: an upgrade that the server refuses is an ordinary answer.
func TestUpgradeRefused(t *testing.T) {
	s := newSite(t, echo("SPDY/3.1"))
	r := request(t, http.MethodPost, s.proxy.URL+"/exec", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "other")
	a, err := client(t, s.proxy, "http/1.1").Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	require.Equal(t, http.StatusBadRequest, a.StatusCode)
}

// TestFlush: each part of an answer comes before the next one is made, as do the parts of a body.
func TestFlush(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			next := make(chan struct{})
			s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_, _ = io.CopyN(io.Discard, r.Body, 5) // of a body that goes on
					close(next)
					_, _ = io.Copy(io.Discard, r.Body)
					return
				}
				w.Header().Set("Content-Length", "21")    // ReverseProxy flushes answers of unknown length by itself
				_ = http.NewResponseController(w).Flush() // the header first
				for i := range 3 {
					<-next
					fmt.Fprintf(w, "line %d\n", i)
					_ = http.NewResponseController(w).Flush()
				}
			}))
			c := client(t, s.proxy, protocol)
			a, err := c.Do(request(t, http.MethodGet, s.proxy.URL+"/log?follow=true", nil))
			require.NoError(t, err)
			defer a.Body.Close()
			lines := bufio.NewReader(a.Body)
			for i := range 3 {
				next <- struct{}{}
				line, err := lines.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("line %d\n", i), line)
			}
			from, to := io.Pipe()
			go func() {
				_, _ = io.WriteString(to, "first")
				<-next // the server has it, though the body has not ended
				_ = to.Close()
			}()
			a, err = c.Do(request(t, http.MethodPost, s.proxy.URL+"/", from))
			require.NoError(t, err)
			require.NoError(t, a.Body.Close())
		})
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestForwardMemoryIsBounded: 1 GiB (16 MiB in short tests) passes in both directions, and through a
// connection whose protocol has changed, with no more memory than the buffers.
func TestForwardMemoryIsBounded(t *testing.T) {
	var size int64 = 1 << 30
	if testing.Short() {
		size = 16 << 20
	}
	t.Run("HTTP/1.1", func(t *testing.T) { testMemory(t, size, false) })
	t.Run("TLS", func(t *testing.T) { testMemory(t, size, true) })
}

// testMemory uses HTTP/2 for requests if it uses TLS.
func testMemory(t *testing.T, size int64, secure bool) {
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			echo("SPDY/3.1")(w, r)
		case r.Method == http.MethodPost:
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		default:
			_, _ = io.CopyN(w, zeros{}, size)
		}
	}))
	c := client(t, s.proxy, "h2")
	if !secure {
		s.plain()
		c = http.DefaultClient
	}
	most := heapDuring(func() {
		a, err := c.Do(request(t, http.MethodPost, s.proxy.URL, io.LimitReader(zeros{}, size)))
		require.NoError(t, err)
		raw, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(size), string(raw))
		require.NoError(t, a.Body.Close())
		a, err = c.Do(request(t, http.MethodGet, s.proxy.URL, nil))
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, a.Body)
		require.NoError(t, err)
		require.Equal(t, size, n)
		require.NoError(t, a.Body.Close())
		if !secure { // upgrades of clients here use TLS
			return
		}
		stream, buffer := upgrade(t, s, "POST", "SPDY/3.1")
		go func() {
			_, _ = io.CopyN(stream, zeros{}, size)
			_ = stream.(interface{ CloseWrite() error }).CloseWrite()
		}()
		n, err = io.Copy(io.Discard, buffer)
		require.NoError(t, err)
		require.Equal(t, size+int64(len("bye")), n)
	})
	require.Less(t, most, uint64(32<<20), "client, server and handler together")
}

// heapDuring returns the greatest size of the heap while fn runs.
func heapDuring(fn func()) (most uint64) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
	}()
	fn()
	close(done)
	<-over
	return most
}
