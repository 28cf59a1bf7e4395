package kubeapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
	"github.com/snapcache/snapcache/internal/seats"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// cached is a collection of ConfigMaps that is served.
type cached struct {
	*Collection
	stored store.Collection
	rv     int
	views  atomic.Int64 // that are open
}

// countedView counts itself until it is closed.
type countedView struct {
	store.View
	c *cached
}

func (v countedView) Close() {
	v.c.views.Add(-1)
	v.View.Close()
}

// newCached stores n objects with as many random bytes each.
func newCached(t testing.TB, db store.DB, n, size int) *cached {
	t.Helper()
	stored, err := db.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	c := &cached{stored: stored}
	r, err := stored.Replace()
	require.NoError(t, err)
	for range n {
		require.NoError(t, r.Apply([]store.Change{storetest.Put(storetest.Object("ns", c.next(), "u", strconv.Itoa(c.rv), nil, random(size)))}))
	}
	require.NoError(t, r.Commit(storetest.Checkpoint(max(1, c.rv))))
	c.Collection = &Collection{
		Info: stored.Info, Description: described(store.Description{Singular: "configmap"}),
		View: func() (store.View, error) {
			v, err := stored.View()
			if err != nil {
				return nil, err
			}
			c.views.Add(1)
			return countedView{v, c}, nil
		},
		State:  stored.State,
		Events: NewEvents(strconv.Itoa(c.rv), clock.RealClock{}),
	}
	return c
}

// next names an object after its resourceVersion.
func (c *cached) next() string {
	c.rv++
	return fmt.Sprintf("o%06d", c.rv)
}

// add stores an object, with its event.
func (c *cached) add(t testing.TB, payload string) {
	t.Helper()
	o := storetest.Object("ns", c.next(), "u", strconv.Itoa(c.rv), nil, payload)
	require.NoError(t, c.stored.Apply(store.Batch{Changes: []store.Change{storetest.Put(o)}, Checkpoint: storetest.Checkpoint(c.rv)}))
	c.Events.Record([]store.Transition{{Type: store.Added, Key: o.Key(), RV: strconv.Itoa(c.rv), Object: o}}, strconv.Itoa(c.rv))
}

func random(size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte('!' + rand.N(90))
	}
	return string(b)
}

func (c *cached) server(dir string) *Server {
	return New(Options{Collections: func() []*Collection { return []*Collection{c.Collection} }, SpoolDir: dir})
}

// pipe is a listener of connections in memory, which have no buffers: what one side has written, the
// other has read. They work with the time of a bubble.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipe() pipe {
	return pipe{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipe) Close() error {
	close(p.closed)
	return nil
}

func (p pipe) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipe) connect() (client, server net.Conn, err error) {
	client, server = net.Pipe()
	select {
	case p.conns <- server:
		return client, server, nil
	case <-p.closed:
		return nil, nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
}

func (p pipe) dial(context.Context, string, string) (net.Conn, error) {
	client, _, err := p.connect()
	return client, err
}

// serveOnPipe serves h over HTTP/1.1, and HTTP/2 without TLS. The returned function ends that.
func serveOnPipe(t *testing.T, h http.Handler, logged io.Writer) (pipe, func()) {
	t.Helper()
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	p := newPipe()
	s := &http.Server{Handler: h, Protocols: &both, ErrorLog: log.New(logged, "", 0)} //nolint:gosec // the clients are ours
	served := make(chan error, 1)
	go func() { served <- s.Serve(p) }()
	return p, func() {
		require.NoError(t, s.Close())
		<-served
	}
}

func (p pipe) client(http2 bool) *http.Client {
	var one http.Protocols
	one.SetHTTP1(!http2)
	one.SetUnencryptedHTTP2(http2)
	// The window of a stream over HTTP/2 is as small as it may be.
	return &http.Client{Transport: &http.Transport{DialContext: p.dial, Protocols: &one, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 10_000}}}
}

// ask sends a GET on a connection of its own and reads the header of the answer.
func (p pipe) ask(t *testing.T, target string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := p.dial(t.Context(), "", "")
	require.NoError(t, err)
	_, err = io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReaderSize(c, 1<<10)
	for line := ""; line != "\r\n"; {
		line, err = r.ReadString('\n')
		require.NoError(t, err)
	}
	return c, r
}

// spoolFiles returns the sizes of the spools' files that this process has open, none of which may have
// a name.
func spoolFiles(t *testing.T) (sizes []int64) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, f := range files {
		name, _ := os.Readlink(f) // it may be closed by now
		if !strings.Contains(name, "snapcache-spool") {
			continue
		}
		require.Contains(t, name, "(deleted)")
		info, err := os.Stat(f)
		require.NoError(t, err)
		sizes = append(sizes, info.Size())
	}
	return sizes
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}

// TestListReaderStops checks that a reader that stops costs a bounded spool for a bounded time.
func TestListReaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		db, err := bolt.Open(filepath.Join(dir, "db"), bolt.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		const objects, size = 600, 10_000
		c := newCached(t, db, objects, size)
		p, closeAll := serveOnPipe(t, c.server(dir), io.Discard)
		defer closeAll()
		before := heap()
		conn, r := p.ask(t, "/api/v1/configmaps?resourceVersion=0")
		synctest.Wait()
		require.Zero(t, c.views.Load(), "the view is closed, so that the pages can be reused")
		require.Less(t, heap()-before, int64(4<<20))
		files := spoolFiles(t)
		require.Len(t, files, 1)
		require.Less(t, files[0], int64(objects*size*11/10))
		names, err := filepath.Glob(filepath.Join(dir, "snapcache-spool*"))
		require.NoError(t, err)
		require.Empty(t, names)
		c.add(t, "the store accepts changes")

		time.Sleep(writeLimit + time.Second)
		require.Empty(t, spoolFiles(t))
		_, err = io.Copy(io.Discard, r)
		require.NoError(t, err)
		require.NoError(t, conn.Close())

		// A client that leaves ends its spool at once.
		conn, _ = p.ask(t, "/api/v1/configmaps?resourceVersion=0")
		synctest.Wait()
		require.Len(t, spoolFiles(t), 1)
		require.NoError(t, conn.Close())
		synctest.Wait()
		require.Empty(t, spoolFiles(t))
		time.Sleep(time.Minute)
	})
}

// TestListSlowReader checks that a client that reads all the time gets its list, however long it
// takes.
func TestListSlowReader(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCached(t, memory.New(), 50, 10_000)
				p, closeAll := serveOnPipe(t, c.server(""), io.Discard)
				defer closeAll()
				client := p.client(http2)
				answer, err := client.Get("http://localhost/api/v1/configmaps")
				require.NoError(t, err)
				began := time.Now()
				var body bytes.Buffer
				for err == nil {
					time.Sleep(time.Second)
					_, err = io.CopyN(&body, answer.Body, 2<<10)
				}
				require.ErrorIs(t, err, io.EOF)
				require.Greater(t, time.Since(began), 4*writeLimit)
				var list struct{ Items []json.RawMessage }
				require.NoError(t, json.Unmarshal(body.Bytes(), &list))
				require.Len(t, list.Items, 50)
				require.NoError(t, answer.Body.Close())
				client.CloseIdleConnections()
			})
		})
	}
}

// TestWatchReaderStops checks that a watcher that does not read is cut, and delays neither the store nor
// another watcher, which may be idle for longer.
func TestWatchReaderStops(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCached(t, memory.New(), 3, 10_000)
				s := c.server("")
				p, closeAll := serveOnPipe(t, s, io.Discard)
				defer closeAll()
				client := p.client(http2)
				stuck, err := p.client(http2).Get("http://localhost/api/v1/configmaps?watch=1&resourceVersion=0")
				require.NoError(t, err)
				answer, err := client.Get("http://localhost/api/v1/configmaps?watch=1&resourceVersion=0") //nolint:bodyclose // it is, below
				require.NoError(t, err)
				defer answer.Body.Close()
				types := make(chan string, 10)
				go func() { // reads on after each frame: the connection has no buffer
					defer close(types)
					frames := json.NewDecoder(answer.Body)
					var frame struct{ Type string }
					for frames.Decode(&frame) == nil {
						types <- frame.Type
					}
				}()
				next := func() { require.Equal(t, "ADDED", <-types) }
				for range 3 {
					next()
				}
				began := time.Now()
				c.add(t, random(10_000))
				next()
				require.Zero(t, time.Since(began))
				synctest.Wait()
				require.Equal(t, 2, held(s.watches, maxWatches))
				require.Equal(t, 1, taken(s.lists), "only while the initial objects are sent")
				require.Zero(t, c.views.Load())

				time.Sleep(writeLimit + time.Second)
				require.Equal(t, 1, held(s.watches, maxWatches), "the watcher that does not read is cut")
				time.Sleep(10 * time.Minute)
				c.add(t, random(10_000))
				next()
				require.NoError(t, answer.Body.Close())
				require.NoError(t, stuck.Body.Close())
				client.CloseIdleConnections()
				time.Sleep(time.Minute)
				require.Zero(t, held(s.watches, maxWatches))
				require.Zero(t, taken(s.lists))
				require.Zero(t, held(s.requests, maxRequests))
			})
		})
	}
}

// stuckWriter is an answer that its client reads only once read is closed.
type stuckWriter struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (w stuckWriter) Write(p []byte) (int, error) {
	<-w.read
	return w.ResponseRecorder.Write(p)
}

// taken returns how many seats are taken.
func taken(s *seats.Seats) int {
	n, _ := s.Taken()
	return n
}

// from returns a GET of a user, on a connection.
func from(ctx context.Context, user, connection, target string) *http.Request {
	ctx = access.WithCaller(ctx, &access.Caller{User: authenticationv1.UserInfo{Username: user}})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	r.RemoteAddr = connection
	return r
}

// TestLimits checks what is bounded by numbers: watches, lists that are sent, and requests.
func TestLimits(t *testing.T) {
	for _, tc := range []struct {
		name, target string
		limit        int
		message      string
		wait         time.Duration
		reason       Refusal
	}{
		{"watches", "/api/v1/configmaps?watch=1&resourceVersion=1", maxWatches, "too many watches", 0, RefusedWatches},
		{"lists", "/api/v1/configmaps?resourceVersion=0", listSeats, "too many lists", waitLimit, RefusedLists},
		{"initial objects", "/api/v1/configmaps?watch=1&resourceVersion=0", listSeats, "too many lists", waitLimit, RefusedLists},
		{"requests", "/api/v1/namespaces/ns/configmaps/o000001?resourceVersion=0", maxRequests, "too many requests", 0, RefusedRequests},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCached(t, memory.New(), 1, 10).server("")
				ctx, cancel := context.WithCancel(t.Context())
				w := stuckWriter{httptest.NewRecorder(), make(chan struct{})}
				serve := func(w http.ResponseWriter, user int) {
					defer func() { _ = recover() }() // of a request that is cancelled
					s.ServeHTTP(w, from(ctx, strconv.Itoa(user), "", tc.target))
				}
				before := heap()
				for user := range tc.limit {
					go serve(stuckWriter{httptest.NewRecorder(), w.read}, user)
				}
				synctest.Wait()
				require.Less(t, (heap()-before)/int64(tc.limit), int64(200<<10))
				refused, began := httptest.NewRecorder(), time.Now()
				serve(refused, -1)
				require.Equal(t, http.StatusTooManyRequests, refused.Code)
				require.Equal(t, "1", refused.Header().Get("Retry-After"))
				require.Contains(t, refused.Body.String(), tc.message)
				require.Equal(t, tc.wait, time.Since(began))
				require.Equal(t, 1, int(valueOf(t, s.opts.Metrics.refused.WithLabelValues(string(tc.reason)))))
				cancel()
				close(w.read)
				synctest.Wait()
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				served := httptest.NewRecorder()
				serve(served, -1)
				require.Equal(t, http.StatusOK, served.Code, "after the others")
			})
		})
	}
}

// TestHugeTimeout checks that no timeoutSeconds overflows.
func TestHugeTimeout(t *testing.T) {
	for _, tc := range []struct {
		seconds string
		code    int
		ends    bool
	}{
		{"9223372036854775807", 200, false},
		{"9223372037", 200, false},
		{"18446744074", 200, false},
		{"3600", 200, true},
		{"-1", 200, true},
		{"-9223372036854775808", 200, true},
		{"-18446744073", 200, true},
		{"9223372036854775808", 400, true},
		{"1e3", 400, true},
		{"\x00", 400, true},
	} {
		t.Run(strconv.Quote(tc.seconds), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCached(t, memory.New(), 1, 10).server("")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/configmaps?watch=1", nil)
				q := r.URL.Query()
				q.Set("timeoutSeconds", tc.seconds)
				r.URL.RawQuery = q.Encode()
				go func() {
					defer func() { _ = recover() }() // it is cancelled
					s.ServeHTTP(w, r)
				}()
				time.Sleep(2 * time.Hour)
				require.Equal(t, !tc.ends, held(s.watches, maxWatches) == 1)
				cancel()
				synctest.Wait()
				require.Equal(t, tc.code, w.Code)
			})
		})
	}
}

// brokenView panics once its records are read.
type brokenView struct{ store.View }

func (brokenView) Records(string, string) iter.Seq2[store.Record, error] { panic("broken") }

// TestPanic checks that a panic ends its request, and is logged, wherever it happens.
func TestPanic(t *testing.T) {
	for _, target := range []string{"/api/v1/configmaps", "/api/v1/configmaps?watch=1", "/api/v1/configmaps?limit=1"} {
		t.Run(target, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCached(t, memory.New(), 1, 10)
				open := c.View
				c.View = func() (store.View, error) {
					v, err := open()
					return brokenView{v}, err
				}
				var logged bytes.Buffer
				s := c.server("")
				p, closeAll := serveOnPipe(t, s, &logged)
				client := p.client(false)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+target, nil)
				require.NoError(t, err)
				r.Header.Set("Authorization", "Bearer secret")
				answer, err := client.Do(r)
				if err == nil {
					_, err = io.ReadAll(answer.Body)
					require.NoError(t, answer.Body.Close())
				}
				require.Error(t, err, "the answer is cut")
				answer, err = client.Get("http://localhost/healthz")
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				client.CloseIdleConnections()
				closeAll()
				require.Contains(t, logged.String(), "panic serving")
				require.Contains(t, logged.String(), "broken")
				require.NotContains(t, logged.String(), "secret")
				require.Zero(t, held(s.watches, maxWatches))
				require.Zero(t, taken(s.lists))
				require.Zero(t, held(s.requests, maxRequests))
			})
		})
	}
}

// held returns how many places, of a number that is that of a node, are taken.
func held(places *semaphore.Weighted, of int) (n int) {
	for all := of * quota.Scale(); !places.TryAcquire(int64(all - n)); n++ {
	}
	places.Release(int64(of*quota.Scale() - n))
	return n
}
