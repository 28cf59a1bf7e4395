package informer_test

import (
	"context"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// jsonDB is a store of pods as JSON, in informers made with withStore.
type jsonDB struct{ store.DB }

// withStore is [informer.WithStore] with the form of the table's store: a durable one stores protobuf
// unless it is a jsonDB.
func withStore(db store.DB, id string) informer.Option {
	with := informer.WithStore(db, id)
	if _, ok := db.(jsonDB); ok {
		return informer.Join(with, informer.WithCodec(informer.NewCodec(&corev1.Pod{}, core())))
	}
	return with
}

// onStores runs a test on a store in memory, on a durable one, and on a durable one with the objects
// as JSON. reopen returns the store, from the second call on in its state after a restart of the
// program. in is synctest.Test, or inTime for a test whose time is the real one.
func onStores(t *testing.T, in func(*testing.T, func(*testing.T)), test func(t *testing.T, reopen func() store.DB)) {
	for _, kind := range []string{"memory", "durable", "durable, JSON"} {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			in(t, func(t *testing.T) {
				var db store.DB
				test(t, func() store.DB {
					switch {
					case kind != "memory":
						if db != nil {
							require.NoError(t, db.Close())
						}
						db = boltDB(t, path)
						if kind == "durable, JSON" {
							db = jsonDB{db}
						}
					case db == nil:
						db = memory.New()
					}
					return db
				})
				require.NoError(t, db.Close())
			})
		})
	}
}

func inTime(t *testing.T, test func(*testing.T)) { test(t) }

// asTrees lists a server's pods as unstructured objects.
func asTrees(t testing.TB, s *server) cache.ListerWatcher {
	tree := func(o k8sruntime.Object) *unstructured.Unstructured {
		content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(o)
		require.NoError(t, err)
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(podKind)
		return u
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (k8sruntime.Object, error) {
			list, err := s.ListWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			trees := &unstructured.UnstructuredList{}
			trees.SetResourceVersion(list.(*corev1.PodList).ResourceVersion)
			for i := range list.(*corev1.PodList).Items {
				trees.Items = append(trees.Items, *tree(&list.(*corev1.PodList).Items[i]))
			}
			return trees, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := s.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			// Not watch.Filter, whose goroutine blocks for ever if it is stopped with an event in hand.
			events := make(chan watch.Event)
			trees := watch.NewProxyWatcher(events)
			go func() {
				defer close(events)
				defer w.Stop()
				for {
					select {
					case <-trees.StopChan():
						return
					case e, ok := <-w.ResultChan():
						if !ok {
							return
						}
						if e.Type != watch.Error {
							e.Object = tree(e.Object)
						}
						select {
						case events <- e:
						case <-trees.StopChan():
							return
						}
					}
				}
			}()
			return trees, nil
		},
	}
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

func treeOf(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// A program that uses its example for another kind goes on getting the events of the first
// one, in this run and in the next.
func TestExampleReusedForAnotherKind(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		s := newServer()
		s.put("a")
		example := treeOf(podKind)
		inf := informer.NewSharedIndexInformer(asTrees(t, s), example, 0, nil, informer.WithStore(reopen(), "pods"))
		example.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		example.SetName("another")
		r := run(t, inf)
		synctest.Wait()
		s.put("b")
		synctest.Wait()
		require.Equal(t, []string{"ns/a", "ns/b"}, inf.GetStore().ListKeys())
		r.stop()
		s.counts()

		inf = informer.NewSharedIndexInformer(asTrees(t, s), treeOf(podKind), 0, nil, informer.WithStore(reopen(), "pods"))
		r = run(t, inf)
		synctest.Wait()
		require.Equal(t, []string{"ns/a", "ns/b"}, inf.GetStore().ListKeys())
		require.Zero(t, s.counts(), "the watch resumed")
		r.stop()
	})
}

// A program that writes to its example while the informer runs makes no data race.
func TestExampleWrittenConcurrently(t *testing.T) {
	onStores(t, inTime, func(t *testing.T, reopen func() store.DB) {
		s := newServer()
		example := treeOf(podKind)
		for n := range 2 { // the second run resumes
			inf := informer.NewSharedIndexInformer(asTrees(t, s), example, 0, nil, informer.WithStore(reopen(), "pods"))
			require.NoError(t, inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}))
			last := make(chan struct{})
			_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
				if o.(*unstructured.Unstructured).GetName() == "last"+strconv.Itoa(n) {
					close(last)
				}
			}})
			require.NoError(t, err)
			var wg sync.WaitGroup
			written := make(chan struct{})
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-written:
						return
					default:
						example.SetKind("Kind" + strconv.Itoa(i%2))
						example.SetName(strconv.Itoa(i))
						runtime.Gosched()
					}
				}
			})
			r := run(t, inf)
			for i := range 50 {
				s.put(strconv.Itoa(i))
			}
			s.put("last" + strconv.Itoa(n))
			<-last
			require.ElementsMatch(t, keysOf(s), inf.GetStore().ListKeys())
			close(written)
			wg.Wait()
			r.stop()
			example.SetGroupVersionKind(podKind)
		}
	})
}

// The example is collected once the program drops it, and the informer goes on, also in the next
// run.
func TestExampleIsGarbageCollected(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		s := newServer()
		for _, name := range []string{"a", "b"} {
			s.put(name)
			example := treeOf(podKind)
			dropped := weak.Make(example)
			inf := informer.NewSharedIndexInformer(asTrees(t, s), example, 0, nil, informer.WithStore(reopen(), "pods"))
			require.NoError(t, inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}))
			r := run(t, inf)
			synctest.Wait()
			for range 10 {
				runtime.GC()
			}
			require.Nil(t, dropped.Value(), "the informer keeps the example")
			s.put(name + "2")
			synctest.Wait()
			require.ElementsMatch(t, keysOf(s), inf.GetStore().ListKeys())
			r.stop()
		}
		require.Equal(t, 1, s.counts(), "the second run resumed")
	})
}

// An event of another type is left out, and the next run does not resume past it: it lists,
// with a reason. After that it resumes again.
func TestSkippedEventsAreListed(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		s := newServer()
		s.put("a")
		start := func() (cache.SharedIndexInformer, *informer.Metrics, store.DB, *running) {
			m, db := informer.NewMetrics(), reopen()
			inf := newInformer(s, withStore(db, "pods"), informer.WithMetrics(m))
			r := run(t, inf)
			synctest.Wait()
			return inf, m, db, r
		}
		inf, _, db, r := start()
		s.set(func(s *server) { // b comes as something else
			s.rv++
			b := pod("ns", "b", "n1", s.rv)
			s.objects["b"] = b
			s.events = append(s.events, watch.Event{Type: watch.Added, Object: &corev1.Node{ObjectMeta: b.ObjectMeta}})
		})
		s.put("c")
		synctest.Wait()
		require.Equal(t, []string{"ns/a", "ns/c"}, inf.GetStore().ListKeys())
		require.True(t, skipped(t, db))
		s.put("c")
		s.elsewhere()
		synctest.Wait()
		require.True(t, skipped(t, db), "a later event does not end the mark of a skipped one")
		r.stop()
		s.counts()

		inf, m, db, r := start()
		require.Equal(t, []string{"ns/a", "ns/b", "ns/c"}, inf.GetStore().ListKeys())
		require.Equal(t, 1, s.counts())
		require.EqualValues(t, 1, scrape(t, m, "relists_total", string(store.ReasonSkipped)))
		require.False(t, skipped(t, db))
		r.stop()

		_, _, _, r = start()
		require.Zero(t, s.counts(), "the watch resumed")
		r.stop()
	})
}

func skipped(t *testing.T, db store.DB) bool {
	v, err := db.View("pods")
	require.NoError(t, err)
	defer v.Close()
	return v.State().Skipped
}

// An informer without an example never syncs and does not panic. The error goes to its watch error
// handler, the log and the reads of its indexer.
func TestNilExample(t *testing.T) {
	factory, err := informer.NewFactory(informer.FactoryOptions{Config: &rest.Config{Host: "https://127.0.0.1:1"}, Scheme: core()})
	require.NoError(t, err)
	defer factory.Shutdown()
	s := newServer()
	s.put("a")
	for _, c := range []struct {
		name    string
		example k8sruntime.Object
		want    string
	}{
		{"nil", nil, "there is no example"},
		{"a nil pointer to a Go type", (*corev1.Pod)(nil), "nil *v1.Pod"},
		{"a nil tree", (*unstructured.Unstructured)(nil), "nil *unstructured.Unstructured"},
		{"a nil stored object", (*object.Object)(nil), "nil *object.Object"},
		{"not a pointer", value{}, "informer_test.value, which is not a pointer"},
	} {
		for _, by := range []struct {
			name string
			make func(...informer.Option) cache.SharedIndexInformer
		}{
			{"NewSharedIndexInformer", func(opts ...informer.Option) cache.SharedIndexInformer {
				return informer.NewSharedIndexInformer(s, c.example, 0, cache.Indexers{"node": byNode}, opts...)
			}},
			{"NewFunc", func(opts ...informer.Option) cache.SharedIndexInformer {
				return informer.NewFunc(memory.New(), opts...)(s, c.example, 0, nil)
			}},
			{"Factory.InformerFor", func(...informer.Option) cache.SharedIndexInformer { return factory.InformerFor(c.example) }},
		} {
			t.Run(c.name+"/"+by.name, func(t *testing.T) {
				inf := by.make(informer.WithScheme(core()))
				reported := make(chan error, 1)
				require.NoError(t, inf.SetWatchErrorHandler(func(r *cache.Reflector, err error) {
					cache.DefaultWatchErrorHandler(t.Context(), r, err)
					reported <- err
				}))
				require.NoError(t, inf.SetTransform(func(o any) (any, error) { return o, nil }))
				require.NoError(t, inf.AddIndexers(cache.Indexers{"letters": byLetters}))
				_, reg := subscribe(t, inf)
				r := run(t, inf)
				require.ErrorContains(t, <-reported, c.want)
				require.False(t, inf.HasSynced())
				require.False(t, reg.HasSynced())
				require.Empty(t, inf.LastSyncResourceVersion())
				r.stop()
				require.True(t, inf.IsStopped())
				x := inf.GetIndexer()
				_, _, err := x.GetByKey("ns/a")
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, x.Add(pod("ns", "a", "n1", 1)), c.want)
				require.ErrorContains(t, x.Replace(nil, "1"), c.want)
				require.Empty(t, x.List())
				require.Positive(t, x.(*informer.Indexer).ReadErrors())
			})
		}
		t.Run(c.name+"/NewIndexer", func(t *testing.T) {
			_, err := informer.NewIndexer(c.example, nil).ByIndex("namespace", "ns")
			require.Error(t, err)
			_, _, err = informer.NewIndexer(c.example, nil).GetByKey("ns/a")
			require.ErrorContains(t, err, c.want)
		})
		t.Run(c.name+"/NewProtobufCodec", func(t *testing.T) {
			_, err := informer.NewProtobufCodec(c.example, core())
			require.ErrorContains(t, err, c.want)
		})
	}
	require.NotSame(t, factory.InformerFor((*corev1.Pod)(nil)), factory.InformerFor(&corev1.Pod{}))
}

// value is an object that is not a pointer.
type value struct{ metav1.TypeMeta }

func (value) GetObjectKind() schema.ObjectKind    { return schema.EmptyObjectKind }
func (v value) DeepCopyObject() k8sruntime.Object { return v }

// A transform that returns another type than the example's is refused before any object is handed
// out: in the first list the informer never syncs, and in a watch the event is not passed.
func TestTransformToAnotherType(t *testing.T) {
	metadata := func(o any) (any, error) {
		return &metav1.PartialObjectMetadata{ObjectMeta: o.(*corev1.Pod).ObjectMeta}, nil
	}
	for _, c := range []struct {
		name      string
		transform cache.TransformFunc
		want      string
	}{
		{"metadata", metadata, "*v1.PartialObjectMetadata, and the informer was made with a *v1.Pod"},
		{"no object", func(o any) (any, error) { return o.(*corev1.Pod).Name, nil }, "a string, and the informer was made with a *v1.Pod"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
				s := newServer()
				s.put("a")
				start := func(transform cache.TransformFunc) (*running, *pods, func() []string) {
					inf := newInformer(s, withStore(reopen(), "pods"), informer.WithScope(store.Scope{Transform: "t"}))
					require.NoError(t, inf.SetTransform(transform))
					reported := &recorder{}
					require.NoError(t, inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { reported.add("%v", err) }))
					h, _ := subscribe(t, inf)
					return run(t, inf), h, reported.take
				}
				r, h, reported := start(c.transform)
				time.Sleep(time.Second)
				synctest.Wait()
				require.False(t, r.HasSynced())
				require.Empty(t, h.take())
				require.Contains(t, reported()[0], c.want)
				r.stop()

				// In a watch, from the second object on.
				bad := true
				r, h, reported = start(func(o any) (any, error) {
					if bad && o.(*corev1.Pod).Name == "b" {
						return c.transform(o)
					}
					return o, nil
				})
				synctest.Wait()
				require.Equal(t, []string{"add a@1 true"}, h.take())
				s.put("b")
				s.put("c")
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Empty(t, h.take())
				require.Contains(t, reported()[0], c.want)
				require.Equal(t, "1", r.LastSyncResourceVersion(), "the checkpoint is past the refused event")
				r.stop()
				bad = false
				r, h, _ = start(func(o any) (any, error) { return o, nil })
				synctest.Wait()
				require.Equal(t, []string{"add a@1 true", "add b@2 false", "add c@3 false"}, h.take())
				r.stop()
			})
		})
	}
}

// A transform may give a tree another kind.
func TestTransformToAnotherKind(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		s := newServer()
		s.put("a")
		inf := informer.NewSharedIndexInformer(asTrees(t, s), treeOf(podKind), 0, nil, informer.WithStore(reopen(), "pods"))
		require.NoError(t, inf.SetTransform(func(o any) (any, error) {
			o.(*unstructured.Unstructured).SetKind("Summary")
			return o, nil
		}))
		r := run(t, inf)
		synctest.Wait()
		s.put("b")
		synctest.Wait()
		for _, o := range inf.GetStore().List() {
			require.Equal(t, "Summary", o.(*unstructured.Unstructured).GetKind())
		}
		require.Len(t, inf.GetStore().List(), 2)
		r.stop()
	})
}
