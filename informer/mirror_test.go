package informer_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
)

// allDecoded returns the options of an informer that keeps all objects decoded.
func allDecoded(db store.DB, id string, more ...informer.Option) []informer.Option {
	return append(more, informer.WithStore(db, id), informer.WithScheme(core()), informer.WithDecoded(informer.All))
}

// Readers get the very object that was stored and, after a restart, an equal one. The durable store
// has what it has without All.
func TestAllDecoded(t *testing.T) {
	withType := pod("x", "a", "n1", 7)
	withType.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	typed := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	tree := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "namespace": "x", "resourceVersion": "7"},
	}}
	raw := parse(t, `{"metadata":{"namespace":"x","name":"a","resourceVersion":"7"}}`)
	for _, c := range []struct {
		name        string
		example, in kruntime.Object
		copied      bool // the reader gets another object
	}{
		{name: "typed", example: &corev1.Pod{}, in: pod("x", "a", "n1", 7)},
		{name: "typed with its kind", example: &corev1.Pod{}, in: withType, copied: true},
		{name: "of an example with its kind", example: typed, in: withType},
		{name: "of an example with its kind, without it", example: typed, in: pod("x", "a", "n1", 7), copied: true},
		{name: "without protobuf", example: &jsonOnly{}, in: &jsonOnly{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}}},
		{name: "unstructured", example: &unstructured.Unstructured{}, in: tree},
		{name: "JSON of a type", example: &corev1.Pod{}, in: raw, copied: true},
		{name: "JSON", example: &object.Object{}, in: raw},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain := boltDB(t, filepath.Join(t.TempDir(), "db"))
			defer func() { require.NoError(t, plain.Close()) }()
			without := informer.NewIndexer(c.example, nil, informer.WithStore(plain, "things"), informer.WithScheme(core()))
			require.NoError(t, without.Add(c.in))
			want, _, err := without.GetByKey("x/a")
			require.NoError(t, err)

			path := filepath.Join(t.TempDir(), "db")
			db := boltDB(t, path)
			before := c.in.DeepCopyObject()
			x := informer.NewIndexer(c.example, nil, allDecoded(db, "things")...)
			require.NoError(t, x.Own())
			require.NoError(t, x.Add(c.in))
			require.Equal(t, before, c.in, "a reader's change reached the stored object")
			got, ok, err := x.GetByKey("x/a")
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, want, got)
			if !c.copied {
				require.Same(t, c.in, got)
			}
			require.Same(t, got, x.List()[0])
			require.Equal(t, stored(t, plain, "things"), stored(t, db, "things"))
			require.NoError(t, db.Close())

			db = boltDB(t, path)
			x = informer.NewIndexer(c.example, nil, allDecoded(db, "things")...)
			require.NoError(t, x.Own())
			got, _, err = x.GetByKey("x/a")
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Same(t, got, x.List()[0])
			require.NoError(t, db.Close())
		})
	}
}

// stored returns the bytes of a collection's objects.
func stored(t *testing.T, db store.DB, id string) (all []string) {
	v, err := db.View(id)
	require.NoError(t, err)
	defer v.Close()
	for o, err := range v.Objects("", "") {
		require.NoError(t, err)
		all = append(all, string(o.Raw()))
	}
	return all
}

// A store in memory holds all objects itself.
func TestAllDecodedInMemory(t *testing.T) {
	db := memory.New()
	x := informer.NewIndexer(&corev1.Pod{}, nil, allDecoded(db, "pods")...)
	p := pod("x", "a", "n1", 1)
	require.NoError(t, x.Add(p))
	got, _, err := x.GetByKey("x/a")
	require.NoError(t, err)
	require.Same(t, p, got)
	v, err := db.View("pods")
	require.NoError(t, err)
	defer v.Close()
	require.Zero(t, v.State().Bytes, "the object is not encoded")
}

// counting counts how often each version of an object is decoded.
type counting struct {
	informer.Codec
	mu    *sync.Mutex
	times map[string]int
}

func (c counting) Decode(o *object.Object) (kruntime.Object, error) {
	c.mu.Lock()
	c.times[o.GetName()+"@"+o.GetResourceVersion()]++
	c.mu.Unlock()
	return c.Codec.Decode(o)
}

// Each version of an object is decoded once at most: when it comes, or when the collection is
// opened after a restart. More indexes decode nothing.
func TestAllDecodedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		for i := range 300 {
			s.put("p" + strconv.Itoa(i))
		}
		for start := range 2 {
			db := boltDB(t, path)
			codec := counting{informer.NewCodec(&corev1.Pod{}, core()), &sync.Mutex{}, map[string]int{}}
			inf := newInformer(s, allDecoded(db, "pods", informer.WithCodec(codec))...)
			require.NoError(t, inf.AddIndexers(cache.Indexers{"letters": byLetters}))
			h, _ := subscribe(t, inf)
			r := run(t, inf)
			synctest.Wait()
			s.put("p1")
			s.put("new" + strconv.Itoa(start))
			synctest.Wait()
			first, ok, err := inf.GetStore().GetByKey("ns/p1")
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, inf.GetIndexer().AddIndexers(cache.Indexers{"app": func(o any) ([]string, error) {
				return []string{o.(*corev1.Pod).Labels["app"]}, nil
			}}))
			for _, index := range []string{"app", "letters"} {
				items, err := inf.GetIndexer().ByIndex(index, "p1")
				require.NoError(t, err)
				for _, item := range items {
					require.Same(t, first, item)
				}
			}
			items, err := inf.GetIndexer().ByIndex("app", "p1")
			require.NoError(t, err)
			require.Len(t, items, 1)
			again, _, err := inf.GetStore().GetByKey("ns/p1")
			require.NoError(t, err)
			require.Same(t, first, again)
			require.Len(t, inf.GetStore().ListKeys(), 301+start)
			late, _ := subscribe(t, inf)
			synctest.Wait()
			require.Len(t, late.take(), 301+start)
			require.Len(t, h.take(), 302+start)
			require.Len(t, codec.times, 302+start)
			for version, n := range codec.times {
				require.Equal(t, 1, n, version)
			}
			r.stop()
			require.NoError(t, db.Close())
		}
	})
}

// The objects are loaded in parallel, and all of them even if that takes longer than a view of the
// store may stay open.
func TestAllDecodedLoadsInParallel(t *testing.T) {
	const chunks, chunk = 6, 64
	synctest.Test(t, func(t *testing.T) {
		db := boltDB(t, filepath.Join(t.TempDir(), "db"))
		plain := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithStore(db, "pods"), informer.WithScheme(core()))
		var list []any
		var want []string
		for i := range chunks * chunk {
			p := pod("x", fmt.Sprintf("p-%03d", i), "n1", i+1)
			list, want = append(list, p), append(want, "x/"+p.Name)
		}
		require.NoError(t, plain.Replace(list, "1000"))
		packed, err := informer.NewProtobufCodec(&corev1.Pod{}, core())
		require.NoError(t, err)
		codec := slowCodec{Codec: packed, takes: bolt.DefaultViewLimit / chunk}
		x := informer.NewIndexer(&corev1.Pod{}, nil, allDecoded(db, "pods", informer.WithCodec(codec))...)
		begun := time.Now()
		require.Equal(t, want, x.ListKeys())
		workers := min(chunks, runtime.GOMAXPROCS(0))
		rounds := (chunks + workers - 1) / workers
		require.Less(t, time.Since(begun), time.Duration(rounds+1)*bolt.DefaultViewLimit)
		require.Len(t, x.List(), len(want))
		require.Zero(t, x.ReadErrors())
		require.NoError(t, db.Close())
	})
}

// An object that can't be decoded is left out and reported, as without All, and replaced by the next
// version that can be.
func TestAllDecodedWithUndecodable(t *testing.T) {
	db := boltDB(t, filepath.Join(t.TempDir(), "db"))
	defer func() { require.NoError(t, db.Close()) }()
	plain := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithStore(db, "pods"))
	require.NoError(t, plain.Add(parse(t, `{"metadata":{"namespace":"x","name":"bad"},"spec":1}`)))
	require.NoError(t, plain.Add(parse(t, `{"metadata":{"namespace":"x","name":"good"}}`)))
	x := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithStore(db, "pods"), informer.WithDecoded(informer.All))
	require.Len(t, x.List(), 1)
	_, _, err := x.GetByKey("x/bad")
	require.ErrorContains(t, err, "decode x/bad")
	require.EqualValues(t, 2, x.ReadErrors())
	require.Equal(t, []string{"x/bad", "x/good"}, x.ListKeys())
	require.NoError(t, x.Add(pod("x", "bad", "n1", 2)))
	require.Len(t, x.List(), 2)
	require.EqualValues(t, 2, x.ReadErrors())
}

// After any sequence of writes, more indexes, restarts and damage to the file, the indexer returns
// what client-go's does, and reports what is damaged.
func TestAllDecodedModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(rapidDir(t), "db")
		db := boltDB(t, path)
		defer func() { require.NoError(t, db.Close()) }()
		indexers := cache.Indexers{"node": byNode, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		open := func() *informer.Indexer {
			return informer.NewIndexer(&corev1.Pod{}, indexers, allDecoded(db, "test")...)
		}
		want, got := cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, maps.Clone(indexers)), open()
		corrupt := map[string]bool{}
		more := false
		for n := range rapid.IntRange(1, 25).Draw(t, "steps") {
			draw := func() *corev1.Pod {
				return pod(rapid.SampledFrom([]string{"x", "y", ""}).Draw(t, "ns"), rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "name"),
					rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"), n)
			}
			switch rapid.SampledFrom([]string{"put", "put", "put", "delete", "replace", "index", "restart", "damage"}).Draw(t, "step") {
			case "put":
				p := draw()
				require.NoError(t, want.Add(p))
				require.NoError(t, got.Add(p))
				delete(corrupt, object.Key(p.Namespace, p.Name))
			case "delete":
				p := draw()
				require.NoError(t, want.Delete(p))
				require.NoError(t, got.Delete(p))
				delete(corrupt, object.Key(p.Namespace, p.Name))
			case "replace":
				list := map[string]any{}
				for range rapid.IntRange(0, 4).Draw(t, "items") {
					p := draw()
					list[object.Key(p.Namespace, p.Name)] = p
				}
				items := make([]any, 0, len(list))
				for _, p := range list {
					items = append(items, p)
				}
				require.NoError(t, want.Replace(items, strconv.Itoa(n)))
				require.NoError(t, got.Replace(slices.Clone(items), strconv.Itoa(n)))
				clear(corrupt)
			case "index":
				if !more {
					require.NoError(t, want.AddIndexers(cache.Indexers{"letters": byLetters}))
					require.NoError(t, got.AddIndexers(cache.Indexers{"letters": byLetters}))
				}
				more = true
			case "restart", "damage":
				require.NoError(t, db.Close())
				p := draw()
				key := object.Key(p.Namespace, p.Name)
				if _, exists, _ := want.GetByKey(key); exists && rapid.Bool().Draw(t, "damage") {
					damage(t, path, key)
					corrupt[key] = true
					require.NoError(t, want.Delete(p))
				}
				db = boltDB(t, path)
				got = open()
				if more {
					require.NoError(t, got.AddIndexers(cache.Indexers{"letters": byLetters}))
				}
			}
			checkDamaged(t, want, got, corrupt)
			if len(corrupt) == 0 {
				want.Bookmark("7")
				got.Bookmark("7")
				sameAnswers(t, want, got)
			}
		}
	})
}

// checkDamaged compares what does not depend on corrupt records, and requires the errors of those.
func checkDamaged(t *rapid.T, want cache.Indexer, got *informer.Indexer, corrupt map[string]bool) {
	before := got.ReadErrors()
	require.ElementsMatch(t, want.List(), got.List())
	require.EqualValues(t, len(corrupt), got.ReadErrors()-before)
	require.ElementsMatch(t, want.ListKeys(), got.ListKeys())
	require.EqualValues(t, 2*len(corrupt), got.ReadErrors()-before)
	for key := range corrupt {
		_, _, err := got.GetByKey(key)
		require.ErrorAs(t, err, new(*store.CorruptionError))
	}
	for _, node := range []string{"n1", "n2"} {
		w, err := want.ByIndex("node", node)
		require.NoError(t, err)
		g, err := got.ByIndex("node", node)
		require.NoError(t, err)
		require.ElementsMatch(t, w, g)
	}
}

// A factory's informer that keeps all objects decoded reads them through the client, which decodes
// them; another one stores what the server sends.
func TestAllDecodedByAFactory(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []informer.Option
		want string
	}{
		{"some decoded", nil, "objects are stored as protobuf, as the server sends them"},
		{"all decoded", []informer.Option{informer.WithDecoded(informer.All)}, "objects are stored as protobuf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := boltDB(t, filepath.Join(t.TempDir(), "db"))
			log := make(messages, 100)
			f, err := informer.NewFactory(informer.FactoryOptions{
				Config: &rest.Config{Host: "http://127.0.0.1:1"}, Scheme: core(), Store: db,
				Informers: append(c.opts, informer.WithLogger(slog.New(log))),
			})
			require.NoError(t, err)
			r := run(t, f.InformerFor(&corev1.Pod{}))
			message := <-log
			for !strings.HasPrefix(message, "objects are stored as") {
				message = <-log
			}
			require.Equal(t, c.want, message)
			r.stop()
			require.NoError(t, db.Close())
		})
	}
}

// messages is a [slog.Handler] that sends the messages, as long as there is space for them.
type messages chan string

func (m messages) Enabled(context.Context, slog.Level) bool { return true }
func (m messages) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m messages) WithGroup(string) slog.Handler            { return m }

func (m messages) Handle(_ context.Context, r slog.Record) error {
	select {
	case m <- r.Message:
	default:
	}
	return nil
}
