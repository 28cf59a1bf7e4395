package kubeapi_test

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// fanOutClients is the environment variable that makes this program the clients of BenchmarkFanOut, so
// that their CPU is not the server's. Its value is the server's URL; the paths of the watches are the
// lines of stdin.
const fanOutClients = "SNAPCACHE_BENCH_CLIENTS"

// packedPath begins a line for a watch that is packed.
const packedPath = "packed "

func init() {
	if host := os.Getenv(fanOutClients); host != "" {
		if err := watchPaths(host); err != nil {
			fmt.Fprintln(os.Stderr, "clients of the benchmark:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// watchPaths opens the watches, packed if the path begins with packedPath. It writes a line to stdout for
// each one that is open, and the number of events that it has received then. It ends with stdin.
func watchPaths(host string) error {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}} //nolint:gosec // the server is ours
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		path, packed := strings.CutPrefix(in.Text(), packedPath)
		r, err := http.NewRequest(http.MethodGet, host+path, nil)
		if err != nil {
			return err
		}
		if packed {
			r.Header.Set("Accept-Encoding", "zstd, gzip")
		}
		answer, err := c.Do(r) //nolint:bodyclose // until the process ends
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", in.Text(), answer.Status)
		}
		fmt.Println("open")
		go func() {
			var body io.Reader = answer.Body
			if packed {
				if body, err = gzip.NewReader(answer.Body); err != nil {
					return
				}
			}
			for buf := make([]byte, 32<<10); ; {
				n, err := body.Read(buf)
				if err != nil {
					return
				}
				if events := bytes.Count(buf[:n], []byte("\n")); events > 0 {
					fmt.Println(events)
				}
			}
		}()
	}
	return in.Err()
}

// fleet is the clients of BenchmarkFanOut.
type fleet struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

// openFleet opens watches in a process of its own, and returns once they are open.
func openFleet(b *testing.B, host string, paths []string) *fleet {
	program, err := os.Executable()
	require.NoError(b, err)
	f := &fleet{Cmd: exec.CommandContext(b.Context(), program)}
	f.Env, f.Stderr = append(os.Environ(), fanOutClients+"="+host), os.Stderr
	in, err := f.StdinPipe()
	require.NoError(b, err)
	out, err := f.StdoutPipe()
	require.NoError(b, err)
	f.in, f.out = in, bufio.NewScanner(out)
	require.NoError(b, f.Start())
	for _, path := range paths {
		_, err := fmt.Fprintln(in, path)
		require.NoError(b, err)
	}
	for range paths {
		require.True(b, f.out.Scan())
	}
	return f
}

// await waits until the watches have received n events.
func (f *fleet) await(b *testing.B, n int) {
	for received := 0; received < n; {
		require.True(b, f.out.Scan())
		events, err := strconv.Atoi(f.out.Text())
		require.NoError(b, err)
		received += events
	}
}

func (f *fleet) close() {
	_ = f.in.Close()
	_ = f.Process.Kill()
	_ = f.Wait()
}

// BenchmarkFanOut measures the CPU of the server for each event that it delivers to a watch, over
// HTTP/2 with TLS, if an event concerns one or few of the watches, or all, plain and packed. Events come at a
// rate, since those that wait together are cheaper. The events of nodes end after 2,400.
func BenchmarkFanOut(b *testing.B) {
	x := newBench(b)
	version := 2
	shop := func(i int) string { return fmt.Sprintf("/api/v1/namespaces/shop-%04d/pods?", i) } // each has its events
	for _, bb := range []struct {
		name      string
		watches   int
		concerned int // watches, of each event
		path      func(i int) string
		every     time.Duration
	}{
		{"one", 40, 1, shop, 10 * time.Millisecond},
		{"one-fast", 40, 1, shop, 500 * time.Microsecond},
		{"namespaces", 1000, 10, func(i int) string { return fmt.Sprintf("/api/v1/namespaces/shop-%04d/pods?", i/10) }, 10 * time.Millisecond},
		{"nodes", 1000, 10, func(i int) string {
			return fmt.Sprintf("/api/v1/pods?fieldSelector=spec.nodeName%%3Dedge-%05d.shops.example.com&", i/10)
		}, 10 * time.Millisecond},
		{"all", 1000, 1000, func(int) string { return "/api/v1/pods?" }, 100 * time.Millisecond},
	} {
		for _, prefix := range []string{"", packedPath} {
			b.Run(bb.name+"/"+cmp.Or(strings.TrimSpace(prefix), "plain"), func(b *testing.B) {
				version += 2
				rv := storetest.PodRV(0, version-1)
				x.events.Record(nil, rv)
				paths := make([]string, bb.watches)
				for i := range paths {
					paths[i] = prefix + bb.path(i) + "watch=1&allowWatchBookmarks=true&resourceVersion=" + rv
				}
				clients := openFleet(b, x.serve(b), paths)
				defer clients.close()
				x.fanOut(b, clients, version, bb.concerned, bb.every)
			})
		}
	}
}

// fanOut delivers an event each time, which concerns so many of the watches.
func (x *bench) fanOut(b *testing.B, clients *fleet, version, concerned int, every time.Duration) {
	events := make([]store.Transition, b.N)
	for i := range events {
		o := benchPod(b, i, version)
		events[i] = store.Transition{Type: store.Modified, Key: o.Key(), RV: o.GetResourceVersion(), Object: o, Old: o}
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	before := cpuTime(b)
	b.ResetTimer()
	for _, e := range events {
		<-ticker.C
		x.events.Record([]store.Transition{e}, e.RV)
	}
	clients.await(b, concerned*b.N)
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(concerned*b.N), "µs-CPU/delivery")
}

// serve serves over HTTP/2 with TLS until the benchmark ends, and returns the server's URL.
func (x *bench) serve(b *testing.B) string {
	log := slog.New(slog.DiscardHandler)
	server := serving.NewServer(x.Server, log)
	credentials, err := serving.Ensure(b.TempDir(), time.Now(), log)
	require.NoError(b, err)
	l, err := credentials.Listen("127.0.0.1:0", serving.Files{}, nil)
	require.NoError(b, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	b.Cleanup(func() {
		require.NoError(b, server.Close())
		require.ErrorIs(b, <-served, http.ErrServerClosed)
	})
	return "https://" + l.Addr().String()
}
