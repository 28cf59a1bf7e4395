package informer_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// panics are what utilruntime.PanicHandlers got.
type panics struct {
	mu   sync.Mutex
	seen []any
}

func (p *panics) handle(_ context.Context, r any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, r)
}

// take returns the panics since the last call.
func (p *panics) take() []any {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.seen
	p.seen = nil
	return seen
}

// watchPanics records panics for one test.
func watchPanics(t testing.TB, crash bool) *panics {
	p := &panics{}
	handlers, crashes := utilruntime.PanicHandlers, utilruntime.ReallyCrash
	utilruntime.PanicHandlers, utilruntime.ReallyCrash = slices.Concat(handlers, []func(context.Context, any){p.handle}), crash
	t.Cleanup(func() { utilruntime.PanicHandlers, utilruntime.ReallyCrash = handlers, crashes })
	return p
}

// bothStores runs a test on a store in memory and on a durable one, with the objects as protobuf and
// as JSON.
func bothStores(t *testing.T, test func(t *testing.T, db store.DB)) {
	for _, c := range []struct {
		name string
		open func(*testing.T, string) store.DB
	}{
		{name: "memory", open: func(*testing.T, string) store.DB { return memory.New() }},
		{name: "bolt", open: func(t *testing.T, path string) store.DB { return boltDB(t, path) }},
		{name: "bolt, JSON", open: func(t *testing.T, path string) store.DB { return jsonDB{boltDB(t, path)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			synctest.Test(t, func(t *testing.T) {
				db := c.open(t, path)
				test(t, db)
				require.NoError(t, db.Close())
			})
		})
	}
}

// badNode panics for pods named "bad".
func badNode(obj any) ([]string, error) {
	if obj.(*corev1.Pod).Name == "bad" {
		panic("of the index")
	}
	return byNode(obj)
}

// A transform that panics refuses the object, in a list and in an event.
func TestTransformPanics(t *testing.T) {
	bothStores(t, func(t *testing.T, db store.DB) {
		p, s, m := watchPanics(t, false), newServer(), informer.NewMetrics()
		s.put("bad")
		s.put("a")
		inf := newInformer(s, withStore(db, "pods"), informer.WithMetrics(m))
		require.NoError(t, inf.SetTransform(func(o any) (any, error) {
			if o.(*corev1.Pod).Name == "bad" {
				panic("of the transform")
			}
			return o, nil
		}))
		var mu sync.Mutex
		var reported []string
		require.NoError(t, inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, err.Error())
		}))
		h, _ := subscribe(t, inf)
		r := run(t, inf)
		synctest.Wait()
		require.Equal(t, []string{"add a@2 true"}, h.take())
		require.Equal(t, []any{"of the transform"}, p.take())
		s.put("bad")
		s.put("b")
		synctest.Wait()
		require.Equal(t, []string{"add b@4 false"}, h.take())
		require.Equal(t, []any{"of the transform"}, p.take())
		require.Equal(t, "4", inf.LastSyncResourceVersion())
		require.EqualValues(t, 2, scrape(t, m, "skipped_total", ""))
		mu.Lock()
		got := slices.Clone(reported)
		mu.Unlock()
		require.Len(t, got, 2)
		require.Contains(t, got[1], "of the transform")
		require.Equal(t, 1, s.counts(), "no list because of a panic")
		r.stop()
	})
}

// An index function that panics leaves its object out of the index and holds no lock afterwards: in
// a list, in an event, and while an index is built from stored objects.
func TestIndexFuncPanics(t *testing.T) {
	bothStores(t, func(t *testing.T, db store.DB) {
		p, s := watchPanics(t, false), newServer()
		s.put("bad")
		s.put("a")
		inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, cache.Indexers{"node": badNode},
			withStore(db, "pods"), informer.WithScheme(core()), informer.WithReadErrorHandler(func(error) { panic("of the handler") }))
		r := run(t, inf)
		synctest.Wait()
		require.NotEmpty(t, p.take())
		s.put("bad")
		s.put("b")
		synctest.Wait()
		seen := p.take()
		require.Contains(t, seen, "of the index")
		require.Contains(t, seen, "of the handler")
		require.NoError(t, inf.AddIndexers(cache.Indexers{"late": badNode}))
		synctest.Wait()
		require.NoError(t, db.Flush())
		s.put("c")
		s.put("bad")
		synctest.Wait()
		x := inf.GetIndexer()
		require.Equal(t, []string{"ns/a", "ns/b", "ns/bad", "ns/c"}, x.ListKeys())
		for _, index := range []string{"node", "late"} {
			var keys []string
			for _, value := range x.ListIndexFuncValues(index) {
				of, err := x.IndexKeys(index, value)
				require.NoError(t, err)
				keys = append(keys, of...)
			}
			require.ElementsMatch(t, []string{"ns/a", "ns/b", "ns/c"}, keys, index)
		}
		require.NotZero(t, x.(*informer.Indexer).ReadErrors())
		p.take()
		_, err := x.Index("node", pod("ns", "bad", "n1", 1))
		require.ErrorContains(t, err, "of the index")
		require.Equal(t, []any{"of the index"}, p.take())
		require.NoError(t, x.Add(pod("ns", "bad", "n1", 9)))
		r.stop()
	})
}

// faulty panics at the first watch and the second list of a server.
type faulty struct {
	*server
	lists, watches int
}

func (f *faulty) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if f.lists++; f.lists == 2 {
		panic("of the list")
	}
	return f.server.ListWithContext(ctx, opts)
}

func (f *faulty) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if f.watches++; f.watches == 1 {
		panic("of the watch")
	}
	return f.server.WatchWithContext(ctx, opts)
}

// A panic of a ListerWatcher counts as an error, and the request is retried.
func TestListerWatcherPanics(t *testing.T) {
	bothStores(t, func(t *testing.T, db store.DB) {
		p, s := watchPanics(t, false), newServer()
		s.put("a")
		inf := informer.NewSharedIndexInformer(&faulty{server: s}, &corev1.Pod{}, 0, nil, withStore(db, "pods"), informer.WithScheme(core()))
		r := run(t, inf)
		time.Sleep(time.Minute)
		s.put("b")
		synctest.Wait()
		require.Equal(t, []any{"of the watch", "of the list"}, p.take())
		require.Equal(t, "2", inf.LastSyncResourceVersion())
		require.Equal(t, 1, s.counts(), "complete lists")
		r.stop()
	})
}

// A watch error handler and an identity function that panic are reported, and the
// informer goes on.
func TestReflectorFunctionsPanic(t *testing.T) {
	bothStores(t, func(t *testing.T, db store.DB) {
		p, s := watchPanics(t, false), newServer()
		s.put("a")
		asked := 0
		inf := newInformer(s, withStore(db, "pods"), informer.WithIdentity(func(context.Context) (string, error) {
			if asked++; asked == 1 {
				panic("of the identity")
			}
			return "", nil
		}))
		require.NoError(t, inf.SetWatchErrorHandler(func(*cache.Reflector, error) { panic("of the handler") }))
		r := run(t, inf)
		synctest.Wait()
		require.Equal(t, []any{"of the identity", "of the handler"}, p.take())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, inf.HasSynced())
		s.hangUp()
		s.put("b")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, "2", inf.LastSyncResourceVersion())
		r.stop()
	})
}

// A panic ends the process if utilruntime.ReallyCrash is true, as it is by default, after the
// PanicHandlers have got it.
func TestPanicsCrash(t *testing.T) {
	if what := os.Getenv("PANICS"); what != "" {
		utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(context.Context, any) { _, _ = os.Stdout.WriteString("handled\n") })
		s := newServer()
		s.put("bad")
		indexers := cache.Indexers{}
		if what == "index" {
			indexers["node"] = badNode
		}
		inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, indexers, informer.WithStore(boltDB(t, filepath.Join(t.TempDir(), "db")), "pods"))
		switch what {
		case "transform":
			require.NoError(t, inf.SetTransform(func(any) (any, error) { panic("of the transform") }))
		case "handler":
			s.set(func(s *server) { s.listErr = context.DeadlineExceeded })
			require.NoError(t, inf.SetWatchErrorHandler(func(*cache.Reflector, error) { panic("of the handler") }))
		}
		inf.RunWithContext(t.Context())
		return
	}
	for _, what := range []string{"transform", "index", "handler"} {
		t.Run(what, func(t *testing.T) {
			out, err := again(t, "TestPanicsCrash", "PANICS="+what).CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), "handled\n")
			require.Contains(t, string(out), "panic: of the "+what)
			require.NotContains(t, string(out), "test timed out")
		})
	}
	x := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"node": badNode})
	p := watchPanics(t, true)
	require.PanicsWithValue(t, "of the index", func() { _, _ = x.Index("node", pod("ns", "bad", "n1", 1)) })
	require.PanicsWithValue(t, "of the index", func() { _ = x.Add(pod("ns", "bad", "n1", 1)) })
	require.Equal(t, []any{"of the index", "of the index"}, p.take())
	require.NoError(t, x.Add(pod("ns", "a", "n1", 2)), "a caller that recovers can go on")
}
