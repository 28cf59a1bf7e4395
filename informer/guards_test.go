package informer_test

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store/memory"
)

// A ListerWatcher is enough to recognise a server that was restored from a backup, or is another
// one.
func TestGuardsOfAPlainListWatch(t *testing.T) {
	history := func(names ...string) *server {
		s := newServer()
		for _, name := range names {
			s.put(name)
		}
		return s
	}
	for _, c := range []struct {
		name   string
		second *server
		lists  int
	}{
		{"the same", history("a", "b"), 0},
		{"it went on", history("a", "b", "a", "c", "b"), 0},
		{"restored, and past it since", history("b", "a", "c", "d"), 1},
		{"restored, and at the same again", history("b", "a"), 1},
		{"restored, and behind", history("a"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memory.New()
				r := run(t, newInformer(history("a", "b"), informer.WithStore(db, "pods")))
				synctest.Wait()
				r.stop()
				inf := newInformer(c.second, informer.WithStore(db, "pods"))
				r = run(t, inf)
				require.True(t, cache.WaitFor(t.Context(), "", inf.HasSyncedChecker()))
				time.Sleep(long)
				synctest.Wait()
				require.Equal(t, c.lists, c.second.counts())
				require.ElementsMatch(t, keysOf(c.second), inf.GetStore().ListKeys())
				r.stop()
			})
		})
	}
}

func keysOf(s *server) (keys []string) {
	s.set(func(s *server) {
		for name := range s.objects {
			keys = append(keys, "ns/"+name)
		}
	})
	return keys
}

// trees lists objects of one type as trees; its watches are silent.
func trees(apiVersion, kind string, lists *int) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Limit != 1 && o.FieldSelector == "" {
				*lists++
			}
			item := unstructured.Unstructured{Object: map[string]any{
				"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "a", "uid": "u", "resourceVersion": "5"},
			}}
			l := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{item}}
			l.SetResourceVersion("7")
			return l, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
}

// Objects stored from another resource, or another version of it, are not resumed from, even if
// only the objects show the difference.
func TestStoredOfAnotherType(t *testing.T) {
	for _, c := range []struct {
		name             string
		apiVersion, kind string
		lists            int
	}{
		{"the same", "example.com/v1", "Widget", 0},
		{"another kind", "example.com/v1", "Gadget", 1},
		{"another version", "example.com/v2", "Widget", 1},
		{"nothing is known", "", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, lists := memory.New(), 0
				for _, of := range [][2]string{{"example.com/v1", "Widget"}, {c.apiVersion, c.kind}} {
					lists = 0
					inf := informer.NewSharedIndexInformer(trees(of[0], of[1], &lists), &unstructured.Unstructured{}, 0, nil, informer.WithStore(db, "things"))
					r := run(t, inf)
					synctest.Wait()
					r.stop()
					if lists > 0 {
						require.Equal(t, of[1], inf.GetStore().List()[0].(*unstructured.Unstructured).GetKind())
					}
				}
				require.Equal(t, c.lists, lists)
			})
		})
	}
}

// A Go type whose kind is in no scheme still has a name.
func TestStoredOfAnotherGoType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, lists := memory.New(), 0
		r := run(t, informer.NewSharedIndexInformer(listOf(&corev1.PodList{}, &lists), &corev1.Pod{}, 0, nil, informer.WithStore(db, "things")))
		synctest.Wait()
		r.stop()
		lists = 0
		r = run(t, informer.NewSharedIndexInformer(listOf(&corev1.PodList{}, &lists), &corev1.Pod{}, 0, nil, informer.WithStore(db, "things")))
		synctest.Wait()
		r.stop()
		require.Zero(t, lists)
		r = run(t, informer.NewSharedIndexInformer(listOf(&corev1.NodeList{}, &lists), &corev1.Node{}, 0, nil, informer.WithStore(db, "things")))
		synctest.Wait()
		r.stop()
		require.Equal(t, 1, lists)
	})
}

// listOf lists nothing, as one type.
func listOf(l runtime.Object, lists *int) cache.ListerWatcher {
	l.(metav1.ListInterface).SetResourceVersion("7")
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Limit != 1 {
				*lists++
			}
			return l, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
}

// If the encoding changes, everything is listed again. Until then, and while the server can't be
// reached, the objects are read in the stored encoding.
func TestStoredInAnotherEncoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := newServer(), filepath.Join(t.TempDir(), "db")
		s.put("a")
		for n, c := range []struct {
			codec informer.Codec
			lists int
		}{
			{informer.NewCodec(&corev1.Pod{}, core()), 1},
			{protobufPods(t), 1},
			{protobufPods(t), 0},
			{informer.NewCodec(&corev1.Pod{}, core()), 1},
		} {
			db := boltDB(t, path)
			inf := newInformer(s, informer.WithStore(db, "pods"), informer.WithCodec(c.codec), informer.WithIndexVersion("node", "1"))
			h, _ := subscribe(t, inf)
			r := run(t, inf)
			synctest.Wait()
			require.Equal(t, c.lists, s.counts(), n)
			require.Equal(t, "add a@"+strconv.Itoa(n+1)+" true", h.take()[0])
			s.put("a")
			synctest.Wait()
			keys, err := inf.GetIndexer().IndexKeys("node", "n"+strconv.Itoa((n+2)%3))
			require.NoError(t, err)
			require.Equal(t, []string{"ns/a"}, keys)
			p, _, err := inf.GetStore().GetByKey("ns/a")
			require.NoError(t, err)
			require.Equal(t, "image:"+strconv.Itoa(n+2), p.(*corev1.Pod).Spec.Containers[0].Image)
			r.stop()
			v, err := db.View("pods")
			require.NoError(t, err)
			o, err := v.Get("ns/a")
			require.NoError(t, err)
			require.Equal(t, c.codec.Encoding() == "protobuf", o.Protobuf())
			v.Close()
			require.NoError(t, db.Close())
		}
	})
}

// A resume makes one request for the probe and one for each of the newest stored objects, three at
// most, and no list.
func TestResumeRequests(t *testing.T) {
	for _, c := range []struct {
		name            string
		objects, probes int
	}{
		{name: "no object", objects: 0, probes: 1},
		{name: "one object", objects: 1, probes: 2},
		{name: "five objects", objects: 5, probes: 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			synctest.Test(t, func(t *testing.T) {
				s, db := newServer(), boltDB(t, path)
				s.elsewhere()
				for n := range c.objects {
					s.put(strconv.Itoa(n))
				}
				r := run(t, newInformer(s, informer.WithStore(db, "pods")))
				synctest.Wait()
				r.stop()
				s.set(func(s *server) { s.lists, s.probes = 0, 0 })
				r = run(t, newInformer(s, informer.WithStore(db, "pods")))
				synctest.Wait()
				s.set(func(s *server) {
					require.Equal(t, c.probes, s.probes)
					require.Zero(t, s.lists)
				})
				r.stop()
				require.NoError(t, db.Close())
			})
		})
	}
}
