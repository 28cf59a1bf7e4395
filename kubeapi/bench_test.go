package kubeapi_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// bench-api compares with a kube-apiserver; these find what costs how much.

const benchPods = 20_000

// bench is a server of one collection with benchPods pods on a durable store.
type bench struct {
	*kubeapi.Server
	events *kubeapi.Events
	keys   []string
}

func newBench(b *testing.B) *bench {
	info := store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true, Transform: object.NewPrune(object.ManagedFields).ID()}
	db, err := bolt.Open(filepath.Join(b.TempDir(), "cache.db"), bolt.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	coll, err := db.Open(info)
	require.NoError(b, err)
	r, err := coll.Replace()
	require.NoError(b, err)
	changes := make([]store.Change, benchPods)
	for i := range changes {
		changes[i] = storetest.Put(benchPod(b, i, 1))
	}
	slices.SortFunc(changes, func(x, y store.Change) int { return compare(x.Key, y.Key) })
	x := &bench{}
	for page := range slices.Chunk(changes, 500) {
		require.NoError(b, r.Apply(page))
		for _, c := range page {
			x.keys = append(x.keys, c.Key)
		}
	}
	rv := storetest.PodRV(0, 2)
	require.NoError(b, r.Commit(store.Checkpoint{RV: rv, Cluster: "bench", LastList: time.Now()}))
	few := store.Batch{Changes: []store.Change{storetest.Put(benchPod(b, 0, 2))}} // as an agent has in memory
	require.NoError(b, coll.Apply(few))
	x.events = kubeapi.NewEvents(rv, clock.RealClock{})
	var description store.Description
	served := &kubeapi.Collection{
		Info: func() store.Info { return info }, Description: func() *store.Description { return &description },
		View: coll.View, State: coll.State,
		Freshness: func() kubeapi.Freshness { return kubeapi.Freshness{Connected: true} },
		Probe:     func(context.Context) (string, error) { return rv, nil },
		Changed:   func() <-chan struct{} { return nil }, Events: x.events,
	}
	x.Server = kubeapi.New(kubeapi.Options{Collections: func() []*kubeapi.Collection { return []*kubeapi.Collection{served} }, SpoolDir: b.TempDir()})
	return x
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// benchPod returns a pod as an agent stores it, without managedFields.
func benchPod(b *testing.B, i, version int) *object.Object {
	raw, err := object.NewPrune(object.ManagedFields).Append(nil, storetest.Pod(i, version))
	require.NoError(b, err)
	o, err := object.FromValid(slices.Clip(raw))
	require.NoError(b, err)
	return o
}

// client discards an answer.
type client struct {
	header http.Header
	code   int
	bytes  int64
	first  time.Time // of the first byte
	wrote  func(p []byte)
}

func (c *client) Header() http.Header { return c.header }
func (c *client) WriteHeader(n int)   { c.code = n }
func (c *client) Flush()              {}

func (c *client) SetWriteDeadline(time.Time) error { return nil }

func (c *client) Write(p []byte) (int, error) {
	if c.bytes == 0 {
		c.first = time.Now()
	}
	c.bytes += int64(len(p))
	if c.wrote != nil {
		c.wrote(p)
	}
	return len(p), nil
}

func (x *bench) ask(b *testing.B, url, accept string) *client {
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	r.Header.Set("Accept", accept)
	c := &client{header: http.Header{}}
	x.ServeHTTP(c, r)
	if c.code != http.StatusOK && c.code != 0 {
		b.Fatalf("%s: %d", url, c.code)
	}
	return c
}

// BenchmarkList measures lists, with the time to the first byte.
func BenchmarkList(b *testing.B) {
	x := newBench(b)
	for _, bb := range []struct{ name, url, accept string }{
		{"whole", "/api/v1/pods?resourceVersion=0", "application/json"},
		{"page", "/api/v1/pods?limit=500", "application/json"},
		{"node", "/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3Dedge-00007.shops.example.com", "application/json"},
		{"table", "/api/v1/pods?resourceVersion=0", "application/json;as=Table;v=v1;g=meta.k8s.io"},
		{"metadata", "/api/v1/pods?resourceVersion=0", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			var first time.Duration
			n := 0
			for ; b.Loop(); n++ {
				began := time.Now()
				c := x.ask(b, bb.url, bb.accept)
				first += c.first.Sub(began)
				b.SetBytes(c.bytes)
			}
			b.ReportMetric(float64(first.Microseconds())/float64(n), "µs/first-byte")
		})
	}
}

// BenchmarkGet measures reads of single objects by the handler alone, with the CPU of the whole process.
func BenchmarkGet(b *testing.B) {
	x := newBench(b)
	for _, bb := range []struct{ name, query string }{{"rv=0", "?resourceVersion=0"}, {"consistent", ""}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			i, before := 0, cpuTime(b)
			for ; b.Loop(); i++ {
				ns, name := split(x.keys[i*7919%len(x.keys)])
				x.ask(b, "/api/v1/namespaces/"+ns+"/pods/"+name+bb.query, "application/json")
			}
			b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(i), "cpu-ns/op")
		})
	}
}

func split(key string) (namespace, name string) {
	for i := range key {
		if key[i] == '/' {
			return key[:i], key[i+1:]
		}
	}
	return "", key
}

// BenchmarkWatch measures the delivery of an event to each of many watches, and the memory of a watch
// that waits, without that of its connection.
func BenchmarkWatch(b *testing.B) {
	x := newBench(b)
	version := 2
	for _, bb := range []struct {
		name, query string
		watches     int
	}{
		{"1", "", 1}, {"1000", "", 1000}, {"1000-selective", "&fieldSelector=spec.nodeName%3Dedge-00000.shops.example.com", 1000},
	} {
		b.Run(bb.name, func(b *testing.B) {
			version++
			rv := storetest.PodRV(0, version)
			x.events.Record(nil, rv)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			var opened, got atomic.Int64
			before := inUse()
			for range bb.watches {
				wg.Go(func() {
					defer func() { _ = recover() }() // http.ErrAbortHandler
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion="+rv+bb.query, nil)
					opened.Add(1)
					x.ServeHTTP(&client{header: http.Header{}, wrote: func(p []byte) {
						if bytes.HasSuffix(p, []byte("}\n")) {
							got.Add(1)
						}
					}}, r)
				})
			}
			await(b, func() bool { return opened.Load() == int64(bb.watches) })
			time.Sleep(100 * time.Millisecond) // until they wait
			after := inUse()
			b.ReportAllocs()
			const every = 100 // pods
			sent := int64(0)
			events := make([]store.Transition, every)
			b.ResetTimer()
			for n := 0; n < b.N; n++ {
				if n%every == 0 {
					b.StopTimer()
					version++
					for i := range events {
						o := benchPod(b, i, version)
						events[i] = store.Transition{Type: store.Modified, Key: o.Key(), RV: o.GetResourceVersion(), Object: o, Old: o}
					}
					b.StartTimer()
				}
				e := events[n%every]
				if bb.query == "" || n%every < 24 {
					sent += int64(bb.watches)
				}
				x.events.Record([]store.Transition{e}, e.RV)
				await(b, func() bool { return got.Load() >= sent })
			}
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(1, sent)), "ns/delivery")
			b.ReportMetric(float64(after-before)/float64(bb.watches), "B/watch")
			cancel()
			wg.Wait()
			version += b.N/every + 1
		})
	}
}

func await(b *testing.B, ok func() bool) {
	for n := 0; !ok(); n++ {
		if n > 1e8 {
			b.Fatal("it does not end")
		}
		runtime.Gosched()
	}
}

// inUse returns the bytes of heap and stacks that are in use.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
