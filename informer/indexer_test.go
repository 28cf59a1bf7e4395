package informer_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// core is a scheme of the types that tests use.
func core() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}

func pod(ns, name, node string, rv int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(rv),
			Labels: map[string]string{"app": name},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "image:" + strconv.Itoa(rv)}}},
	}
}

// byNode is an index that needs the decoded object.
func byNode(obj any) ([]string, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("a %T is no pod", obj)
	}
	if p.Spec.NodeName == "" {
		return nil, nil
	}
	return []string{p.Spec.NodeName}, nil
}

func byLetters(obj any) ([]string, error) { return strings.Split(obj.(*corev1.Pod).Name, ""), nil }

func boltDB(t require.TestingT, path string) *bolt.DB {
	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	return db
}

// After any sequence of operations, client-go's indexer and ours return the same.
func TestIndexerModel(t *testing.T) {
	for _, c := range []struct {
		name string
		open func(*rapid.T) (store.DB, []informer.Option)
	}{
		{"memory", func(*rapid.T) (store.DB, []informer.Option) { return memory.New(), nil }},
		{"bolt", func(t *rapid.T) (store.DB, []informer.Option) {
			return boltDB(t, filepath.Join(rapidDir(t), "db")), nil
		}},
		{"bolt, JSON", func(t *rapid.T) (store.DB, []informer.Option) {
			return jsonDB{boltDB(t, filepath.Join(rapidDir(t), "db"))}, nil
		}},
		{"bolt, all decoded", func(t *rapid.T) (store.DB, []informer.Option) {
			return boltDB(t, filepath.Join(rapidDir(t), "db")), []informer.Option{informer.WithDecoded(informer.All)}
		}},
		{"hot", func(*rapid.T) (store.DB, []informer.Option) {
			return memory.New(), []informer.Option{informer.WithDecoded(2)}
		}},
		{"no keep", func(*rapid.T) (store.DB, []informer.Option) {
			return memory.New(), []informer.Option{informer.WithDecoded(0)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				db, opts := c.open(t)
				defer func() { require.NoError(t, db.Close()) }()
				indexers := cache.Indexers{"node": byNode}
				if rapid.Bool().Draw(t, "namespace index") {
					indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
				}
				want := cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{})
				require.NoError(t, want.AddIndexers(indexers))
				got := informer.NewIndexer(&corev1.Pod{}, indexers, append(opts, withStore(db, "pods"), informer.WithScheme(core()))...)
				require.Empty(t, got.LastStoreSyncResourceVersion())
				for n := range rapid.IntRange(1, 25).Draw(t, "steps") {
					any := func() *corev1.Pod {
						n := rapid.SampledFrom([]int{n, n, n - 3}).Draw(t, "rv") // it may go back
						return pod(rapid.SampledFrom([]string{"x", "y", ""}).Draw(t, "ns"), rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "name"),
							rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"), n)
					}
					switch rapid.IntRange(0, 7).Draw(t, "step") {
					case 0, 1:
						p := any()
						require.NoError(t, want.Add(p))
						require.NoError(t, got.Add(p))
					case 2:
						p := any()
						require.NoError(t, want.Update(p))
						require.NoError(t, got.Update(p))
					case 3:
						p := any()
						require.NoError(t, want.Delete(p))
						require.NoError(t, got.Delete(p))
					case 4:
						d := cache.DeletedFinalStateUnknown{Key: "x/a"}
						require.NoError(t, want.Delete(d))
						require.NoError(t, got.Delete(d))
					case 5:
						list := map[string]*corev1.Pod{}
						for range rapid.IntRange(0, 4).Draw(t, "items") {
							p := any()
							list[p.Namespace+"/"+p.Name] = p
						}
						var items []interface{}
						for _, p := range list {
							items = append(items, p)
						}
						require.NoError(t, want.Replace(items, strconv.Itoa(n)))
						require.NoError(t, got.Replace(slices.Clone(items), strconv.Itoa(n)))
					case 6:
						more := cache.Indexers{"letters": byLetters}
						w, g := want.AddIndexers(more), got.AddIndexers(more)
						require.Equal(t, w == nil, g == nil, "%v, %v", w, g)
					case 7:
						rv := rapid.SampledFrom([]string{"", "3", "100", "x"}).Draw(t, "bookmark")
						want.Bookmark(rv)
						got.Bookmark(rv)
					}
					sameAnswers(t, want, got)
				}
				require.Zero(t, got.ReadErrors())
			})
		})
	}
}

// sameAnswers compares the results of all reads of two indexers.
func sameAnswers(t require.TestingT, want, got cache.Indexer) {
	require.Equal(t, want.LastStoreSyncResourceVersion(), got.LastStoreSyncResourceVersion())
	require.ElementsMatch(t, want.List(), got.List())
	require.ElementsMatch(t, want.ListKeys(), got.ListKeys())
	require.NoError(t, got.Resync())
	for _, ns := range []string{"x", "y", ""} {
		for _, name := range []string{"a", "b", "ab", "none"} {
			p := pod(ns, name, "n1", 0)
			w, wok, err := want.Get(p)
			require.NoError(t, err)
			g, gok, err := got.Get(p)
			require.NoError(t, err)
			require.Equal(t, wok, gok)
			require.Equal(t, w, g)
			for index := range want.GetIndexers() {
				w, err := want.Index(index, p)
				require.NoError(t, err)
				g, err := got.Index(index, p)
				require.NoError(t, err)
				require.ElementsMatch(t, w, g)
			}
		}
	}
	require.Len(t, got.GetIndexers(), len(want.GetIndexers()))
	for _, index := range []string{"node", "letters", cache.NamespaceIndex, "none"} {
		require.ElementsMatch(t, want.ListIndexFuncValues(index), got.ListIndexFuncValues(index))
		_, werr := want.Index(index, pod("x", "a", "", 0))
		_, gerr := got.Index(index, pod("x", "a", "", 0))
		require.Equal(t, werr == nil, gerr == nil)
		for _, value := range []string{"n1", "n2", "a", "b", "x", "", "none"} {
			w, werr := want.ByIndex(index, value)
			g, gerr := got.ByIndex(index, value)
			require.Equal(t, werr == nil, gerr == nil)
			require.ElementsMatch(t, w, g)
			wk, werr := want.IndexKeys(index, value)
			gk, gerr := got.IndexKeys(index, value)
			require.Equal(t, werr == nil, gerr == nil)
			require.ElementsMatch(t, wk, gk)
		}
	}
}

// An index with a version is used as it was stored; one without is built again, because its
// function may have changed.
func TestIndexVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	var calls atomic.Int64 // the store builds in the background
	counted := func(obj any) ([]string, error) {
		calls.Add(1)
		return byNode(obj)
	}
	s := newServer()
	s.put("a")
	s.put("b")
	for n, want := range []struct {
		opts  []informer.Option
		calls int
	}{
		{opts: nil},
		{opts: nil, calls: 2},
		{opts: []informer.Option{informer.WithIndexVersion("node", "1")}, calls: 2},
		{opts: []informer.Option{informer.WithIndexVersion("node", "1")}, calls: 0},
		{opts: []informer.Option{informer.WithIndexVersion("node", "2")}, calls: 2},
	} {
		db := boltDB(t, path)
		inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, cache.Indexers{"node": counted},
			append(want.opts, informer.WithStore(db, "pods"), informer.WithScheme(core()))...)
		x := inf.GetIndexer()
		calls.Store(0)
		r := run(t, inf)
		require.True(t, cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced))
		if n == 0 {
			calls.Store(0)
		}
		for { // while it is built, and after
			keys, err := x.IndexKeys("node", "n2")
			require.NoError(t, err)
			require.Equal(t, []string{"ns/b"}, keys)
			require.Equal(t, []string{"n1", "n2"}, x.ListIndexFuncValues("node"))
			if v, err := db.View("pods"); err == nil && len(v.Building()) == 0 {
				v.Close()
				break
			} else if err == nil {
				v.Close()
			}
		}
		require.Equal(t, want.calls > 0, calls.Load() > 0, "run %d", n)
		r.stop()
		require.NoError(t, db.Close())
	}
}

// A program's own index function under the name of the built-in index is used.
func TestNamespaceIndexReplaced(t *testing.T) {
	x := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{cache.NamespaceIndex: byNode})
	require.NoError(t, x.Add(pod("x", "a", "n1", 1)))
	keys, err := x.IndexKeys(cache.NamespaceIndex, "n1")
	require.NoError(t, err)
	require.Equal(t, []string{"x/a"}, keys)
	require.Equal(t, []string{"n1"}, x.ListIndexFuncValues(cache.NamespaceIndex))
}

// An index function that fails leaves the object out of the index only, and the error is reported.
func TestIndexFuncFails(t *testing.T) {
	var reported []error
	x := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"node": func(obj any) ([]string, error) {
		if obj.(*corev1.Pod).Name == "a" {
			return nil, errors.New("not today")
		}
		return byNode(obj)
	}}, informer.WithReadErrorHandler(func(err error) { reported = append(reported, err) }))
	require.NoError(t, x.Add(pod("x", "a", "n1", 1)))
	require.NoError(t, x.Add(pod("x", "b", "n1", 1)))
	keys, err := x.IndexKeys("node", "n1")
	require.NoError(t, err)
	require.Equal(t, []string{"x/b"}, keys)
	require.Len(t, x.List(), 2)
	require.NotEmpty(t, reported)
	require.ErrorContains(t, reported[0], "index node: x/a is not in it: not today")
	require.EqualValues(t, len(reported), x.ReadErrors())
	_, err = x.Index("node", pod("x", "a", "n1", 1))
	require.ErrorContains(t, err, "not today")
}

// The number of decoded objects is bounded: those that were used last stay, a list evicts none of
// them, and a reader's change of an object does not reach the store.
func TestDecodedCacheIsBounded(t *testing.T) {
	db := boltDB(t, filepath.Join(t.TempDir(), "db"))
	x := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithStore(db, "pods"), informer.WithDecoded(2))
	for n, name := range []string{"a", "b", "c", "d"} {
		require.NoError(t, x.Add(pod("x", name, "n1", n+1)))
	}
	get := func(name string) *corev1.Pod {
		p, ok, err := x.GetByKey("x/" + name)
		require.NoError(t, err)
		require.True(t, ok)
		return p.(*corev1.Pod)
	}
	a, b := get("a"), get("b")
	require.Len(t, x.List(), 4)
	require.Same(t, b, get("b"))
	require.Same(t, a, get("a"))
	get("c") // evicts b
	require.Same(t, a, get("a"))
	require.NotSame(t, b, get("b"))
	a.Spec.NodeName = "mine"
	get("c")
	get("d") // evicts a
	require.Equal(t, "n1", get("a").Spec.NodeName)
	require.NoError(t, db.Close())
}

// slowCodec takes time to decode each object.
type slowCodec struct {
	informer.Codec
	takes time.Duration
}

func (c slowCodec) Decode(o *object.Object) (runtime.Object, error) {
	time.Sleep(c.takes)
	return c.Codec.Decode(o)
}

// TestListLongerThanViewLimit decodes for longer than a view of the store may stay open: a list has all
// objects all the same, and objects by index are all of them or an error.
func TestListLongerThanViewLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := bolt.Open(filepath.Join(t.TempDir(), "db"), bolt.Options{})
		require.NoError(t, err)
		codec := slowCodec{Codec: informer.NewCodec(&corev1.Pod{}, core()), takes: bolt.DefaultViewLimit / 3}
		x := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			informer.WithStore(db, "pods"), informer.WithCodec(codec), informer.WithDecoded(1))
		var want []string
		for i := range 20 {
			name := fmt.Sprintf("p-%02d", i)
			want = append(want, name)
			require.NoError(t, x.Add(pod("x", name, "n1", i+1)))
		}
		var names []string
		for _, item := range x.List() {
			names = append(names, item.(*corev1.Pod).Name)
		}
		require.Equal(t, want, names)
		require.Zero(t, x.ReadErrors())
		_, err = x.ByIndex(cache.NamespaceIndex, "x")
		require.ErrorIs(t, err, store.ErrViewExpired)
		require.NoError(t, db.Close())
	})
}

// failingViews is a store that closes for readers after some views.
type failingViews struct {
	store.DB
	views int
}

func (db *failingViews) View(id string) (store.View, error) {
	if db.views--; db.views < 0 {
		return nil, store.ErrClosed
	}
	return db.DB.View(id)
}

// TestListUnfinished: a list that can't be finished has no objects, not a part of them.
func TestListUnfinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := bolt.Open(filepath.Join(t.TempDir(), "db"), bolt.Options{})
		require.NoError(t, err)
		codec := slowCodec{Codec: informer.NewCodec(&corev1.Pod{}, core()), takes: bolt.DefaultViewLimit / 3}
		x := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithStore(&failingViews{db, 1}, "pods"), informer.WithCodec(codec), informer.WithDecoded(1))
		for i := range 20 {
			require.NoError(t, x.Add(pod("x", fmt.Sprintf("p-%02d", i), "n1", i+1)))
		}
		require.Nil(t, x.List())
		require.EqualValues(t, 1, x.ReadErrors())
		require.NoError(t, db.Close())
	})
}

func TestReadErrors(t *testing.T) {
	db := memory.New()
	var reported int
	x := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"node": byNode}, informer.WithStore(db, "pods"),
		informer.WithReadErrorHandler(func(err error) {
			require.ErrorIs(t, err, store.ErrClosed)
			reported++
		}))
	require.NoError(t, x.Add(pod("x", "a", "n1", 1)))
	require.NoError(t, db.Close())
	require.Empty(t, x.List())
	require.Empty(t, x.ListKeys())
	require.Empty(t, x.ListIndexFuncValues("node"))
	_, _, err := x.GetByKey("x/a")
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = x.ByIndex("node", "n1")
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = x.IndexKeys("node", "n1")
	require.ErrorIs(t, err, store.ErrClosed)
	require.Equal(t, 6, reported)
	require.EqualValues(t, 6, x.ReadErrors())
	require.ErrorIs(t, x.Add(pod("x", "b", "n1", 1)), store.ErrClosed)
	require.ErrorIs(t, x.Replace(nil, "2"), store.ErrClosed)
}

// An object that can't be decoded is left out of a list and reported.
func TestUndecodableObject(t *testing.T) {
	db := memory.New()
	info := storetest.Info("pods")
	info.Kind = "" // an indexer without a scheme knows no kind
	coll, err := db.Open(info)
	require.NoError(t, err)
	bad := parse(t, `{"metadata":{"name":"bad","namespace":"x"},"spec":"none"}`)
	require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{storetest.Put(bad), storetest.Put(parse(t, `{"metadata":{"name":"good","namespace":"x"}}`))}}))
	require.NoError(t, coll.Close())
	x := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithStore(db, "pods"), informer.WithScope(coll.Info().Scope()))
	require.Len(t, x.List(), 1)
	_, _, err = x.GetByKey("x/bad")
	require.ErrorContains(t, err, "decode x/bad as a v1.Pod")
	require.EqualValues(t, 2, x.ReadErrors())
	require.ErrorContains(t, x.Add("a string"), "no runtime.Object")
	require.ErrorAs(t, x.Delete("a string"), new(cache.KeyError))
}

// A caller's write to the indexer of an informer that runs or has run does not move its
// resourceVersion, in memory or on disk: a watch that resumes there would miss the events before.
// Nor does it make a collection synced.
func TestCallersDoNotMoveTheCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			open func() store.DB
		}{
			{name: "memory", open: func() store.DB { return memory.New() }},
			{name: "bolt", open: func() store.DB { return boltDB(t, path) }},
			{name: "bolt, JSON", open: func() store.DB { return jsonDB{boltDB(t, path+"-json")} }},
		} {
			s, db := newServer(), c.open()
			inf := newInformer(s, withStore(db, "pods"))
			x := inf.GetIndexer()
			x.Bookmark("500")
			require.Equal(t, "500", x.LastStoreSyncResourceVersion(), c.name)
			s.set(func(s *server) { s.listErr = errors.New("down") })
			s.put("a")
			s.put("b")
			r := run(t, inf)
			write := func(want string, synced bool) {
				synctest.Wait()
				x.Bookmark("900")
				require.NoError(t, x.Add(pod("ns", "mine", "n1", 901)), c.name)
				require.NoError(t, x.Update(pod("ns", "mine", "n1", 902)), c.name)
				require.NoError(t, x.Delete(pod("ns", "mine", "n1", 903)), c.name)
				require.NoError(t, x.Replace([]any{pod("ns", "other", "n1", 904)}, "905"), c.name)
				require.Equal(t, []string{"ns/other"}, x.ListKeys(), c.name)
				require.Equal(t, want, x.LastStoreSyncResourceVersion(), c.name)
				v, err := db.View("pods")
				require.NoError(t, err, c.name)
				defer v.Close()
				require.Equal(t, want, v.State().RV, c.name)
				require.Equal(t, synced, v.State().Synced, c.name)
			}
			write("", false)
			s.set(func(s *server) { s.listErr = nil })
			time.Sleep(time.Minute)
			write("2", true)
			s.elsewhere() // the informer's own bookmark
			synctest.Wait()
			require.Equal(t, "3", x.LastStoreSyncResourceVersion(), c.name)
			r.stop()
			write("3", true)
			require.NoError(t, db.Close(), c.name)
		}
		db := boltDB(t, path)
		x := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithStore(db, "pods"), informer.WithScheme(core()))
		require.Equal(t, "3", x.LastStoreSyncResourceVersion())
		require.NoError(t, db.Close())
	})
}
