package forward

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/kubeapi/serving"
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

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// inBubble runs fn for each protocol in a bubble, with a client of an agent's server that forwards to h.
func inBubble(t *testing.T, h http.Handler, fn func(t *testing.T, c *http.Client, p pipes)) {
	t.Helper()
	certificates := startTLS(t, h).TLS.Certificates
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := slog.New(slog.DiscardHandler)
				s := &site{Handler: New(Options{Connected: func() bool { return true }, Await: await, Clock: clock.RealClock{}, Log: log})}
				caller := &access.Caller{User: authenticationv1.UserInfo{Username: "user"}}
				up, p := make(pipes), make(pipes)
				require.NoError(t, s.connect(&rest.Config{Host: "http://upstream", Dial: up.dial}))
				upstream, proxy := &http.Server{Handler: h}, serving.NewBodyServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // no timeouts, as in a kube-apiserver
					s.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), caller)))
				}), log)
				served := make(chan error, 2)
				go func() { served <- upstream.Serve(up) }()
				go func() {
					served <- proxy.Serve(tls.NewListener(p, &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}}))
				}()
				transport := &http.Transport{
					DialContext: p.dial, ForceAttemptHTTP2: protocol == "h2",
					TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}, //nolint:gosec // in memory
				}
				fn(t, &http.Client{Transport: transport}, p)
				transport.CloseIdleConnections()
				require.NoError(t, proxy.Close())
				s.closeIdle()
				require.NoError(t, upstream.Close())
				for range 2 {
					require.ErrorIs(t, <-served, http.ErrServerClosed)
				}
				time.Sleep(time.Minute) // for what net/http still has to end
			})
		})
	}
}

// slack is what TLS may take to close a connection.
const slack = 6 * time.Second

// TestBodyStalls: a request whose client does not go on with its body ends after a while, and the
// server does not take the part for the whole. A slow client is served.
func TestBodyStalls(t *testing.T) {
	type seen struct {
		n   int64
		err error
		at  time.Time
	}
	const slow = stall - time.Second
	for _, tc := range []struct {
		name   string
		parts  int
		stalls bool
		took   time.Duration
	}{
		{"stalls at once", 0, true, stall},
		{"stalls after some parts", 10, true, 9*slow + stall},
		{"slow", 10, false, 10 * slow},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var server chan seen
			h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				server <- seen{n, err, time.Now()}
			})
			inBubble(t, h, func(t *testing.T, c *http.Client, _ pipes) {
				server = make(chan seen, 1)
				from, to := io.Pipe()
				began := time.Now()
				var client sync.WaitGroup
				defer client.Wait()
				client.Go(func() {
					for range tc.parts {
						_, _ = io.WriteString(to, "x")
						time.Sleep(slow)
					}
					if tc.stalls {
						time.Sleep(2 * stall)
					}
					_ = to.Close()
				})
				a, err := c.Do(request(t, http.MethodPost, "https://agent/x", from))
				got := <-server
				require.InDelta(t, tc.took.Seconds(), got.at.Sub(began).Seconds(), 1)
				require.EqualValues(t, tc.parts, got.n)
				require.Equal(t, tc.stalls, got.err != nil, "%v", got.err)
				if err != nil { // over HTTP/1.1 the connection is cut, over HTTP/2 there is an answer
					require.True(t, tc.stalls, "%v", err)
					return
				}
				require.NoError(t, a.Body.Close())
				require.Equal(t, tc.stalls, a.StatusCode == http.StatusRequestTimeout)
			})
		})
	}
}

// TestServerReadsSlowly: a client whose body the server does not read for long is not taken for one that
// stalls.
func TestServerReadsSlowly(t *testing.T) {
	const size = 8 << 20 // more than all buffers hold
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.CopyN(io.Discard, r.Body, size/2)
		time.Sleep(time.Hour)
		rest, _ := io.Copy(io.Discard, r.Body)
		time.Sleep(time.Hour)
		_, _ = fmt.Fprint(w, n+rest)
	})
	inBubble(t, h, func(t *testing.T, c *http.Client, _ pipes) {
		a, err := c.Do(request(t, http.MethodPost, "https://agent/x", io.LimitReader(zeros{}, size)))
		require.NoError(t, err)
		raw, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		require.NoError(t, a.Body.Close())
		require.Equal(t, fmt.Sprint(size), string(raw))
	})
}

// TestAnswerStalls: an answer that its client does not go on with reading is cut after a while. One that is
// read slowly is not, and neither is one of which nothing comes.
func TestAnswerStalls(t *testing.T) {
	const part = 8 << 20 // more than a client of HTTP/2 takes without reading
	for _, tc := range []struct {
		name  string
		reads int
		idle  time.Duration // of the server, before each part
		cut   bool
	}{
		{"stalls at once", 0, 0, true},
		{"stalls after some parts", 5, 0, true},
		{"idle", 5, time.Hour, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var ended chan time.Time
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { ended <- time.Now() }()
				_ = http.NewResponseController(w).Flush()
				// ReverseProxy flushes the header in a goroutine, which must not wait for a lock while the first
				// part is written: the time of a bubble would stand still.
				time.Sleep(time.Second)
				for range 10 {
					time.Sleep(tc.idle)
					if _, err := w.Write(make([]byte, part)); err != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
				}
			})
			inBubble(t, h, func(t *testing.T, c *http.Client, _ pipes) {
				ended = make(chan time.Time, 1)
				a, err := c.Do(request(t, http.MethodGet, "https://agent/x", nil))
				require.NoError(t, err)
				for range tc.reads {
					time.Sleep(stall - time.Second)
					_, err := io.CopyN(io.Discard, a.Body, part)
					require.NoError(t, err)
				}
				if !tc.cut {
					n, err := io.Copy(io.Discard, a.Body)
					require.NoError(t, err)
					require.EqualValues(t, (10-tc.reads)*part, n)
				} else {
					began := time.Now()
					require.InDelta(t, stall.Seconds(), (<-ended).Sub(began).Seconds(), slack.Seconds())
					_, err := io.Copy(io.Discard, a.Body)
					require.Error(t, err, "a part is not taken for the whole")
				}
				require.NoError(t, a.Body.Close())
			})
		})
	}
}

// TestStreamStalls: a connection whose protocol has changed may be idle, but ends a while after its client
// has ceased to accept what comes.
func TestStreamStalls(t *testing.T) {
	inBubble(t, echo("SPDY/3.1"), func(t *testing.T, _ *http.Client, p pipes) {
		pipe, err := p.dial(t.Context(), "", "")
		require.NoError(t, err)
		c := tls.Client(pipe, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // in memory
		r := request(t, http.MethodPost, "https://agent/exec", nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "SPDY/3.1")
		require.NoError(t, r.Write(c))
		buffer := bufio.NewReader(c)
		a, err := http.ReadResponse(buffer, r) //nolint:bodyclose // the body is the connection
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, a.StatusCode)
		_, err = buffer.Discard(len("hello "))
		require.NoError(t, err)
		for range 3 {
			time.Sleep(time.Hour)
			_, err = io.WriteString(c, "idle")
			require.NoError(t, err)
			_, err = buffer.Discard(len("idle"))
			require.NoError(t, err)
		}
		began := time.Now()
		for err == nil {
			_, err = c.Write(make([]byte, 32<<10))
		}
		require.InDelta(t, stall.Seconds(), time.Since(began).Seconds(), slack.Seconds())
		require.NoError(t, pipe.Close())
	})
}
