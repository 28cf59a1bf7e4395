package informer_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// In memory every reader gets the very object that was stored, as from client-go; the store's own
// readers get the encoded form.
func TestDecodedInMemory(t *testing.T) {
	withType := pod("x", "a", "n1", 7)
	withType.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	tree := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "namespace": "x", "resourceVersion": "7"},
	}}
	for _, c := range []struct {
		name        string
		example, in runtime.Object
		codec       informer.Codec
		copied      bool // the reader gets another object
	}{
		{name: "typed", example: &corev1.Pod{}, in: pod("x", "a", "n1", 7)},
		{name: "typed with its kind", example: &corev1.Pod{}, in: withType, copied: true},
		{name: "without protobuf", example: &jsonOnly{}, in: &jsonOnly{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}}},
		{name: "unstructured", example: &unstructured.Unstructured{}, in: tree},
		{name: "JSON of a type", example: &corev1.Pod{}, in: parse(t, `{"metadata":{"namespace":"x","name":"a"}}`), copied: true},
		{name: "protobuf", example: &corev1.Pod{}, in: pod("x", "a", "n1", 7), codec: protobufPods(t), copied: true},
		{name: "codec of the caller", example: &corev1.Pod{}, in: pod("x", "a", "n1", 7), codec: picky{informer.NewCodec(&corev1.Pod{}, core())}, copied: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := memory.New()
			opts := []informer.Option{informer.WithStore(db, "things"), informer.WithScheme(core())}
			codec := c.codec
			if codec == nil {
				codec = informer.NewCodec(c.example, core())
			} else {
				opts = append(opts, informer.WithCodec(codec))
			}
			before := c.in.DeepCopyObject()
			want, err := codec.Encode(c.in)
			require.NoError(t, err)
			decoded, err := codec.Decode(want)
			require.NoError(t, err)

			calls := 0
			x := informer.NewIndexer(c.example, cache.Indexers{"all": func(any) ([]string, error) { calls++; return []string{"all"}, nil }}, opts...)
			require.NoError(t, x.Own())
			require.NoError(t, x.Add(c.in))
			require.Equal(t, before, c.in, "a reader's change reached the stored object")
			got, ok, err := x.GetByKey("x/a")
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, decoded, got)
			if !c.copied {
				require.Same(t, c.in, got)
			}
			byIndex, err := x.ByIndex("all", "all")
			require.NoError(t, err)
			byNamespace, err := x.Index("all", got)
			require.NoError(t, err)
			for _, list := range [][]any{x.List(), byIndex, byNamespace} {
				require.Len(t, list, 1)
				require.Same(t, got, list[0], "decoded once")
			}
			require.Equal(t, 2, calls, "index function: one call for the stored object, one for Index")

			v, err := db.View("things")
			require.NoError(t, err)
			defer v.Close()
			o, err := v.Get("x/a")
			require.NoError(t, err)
			stored := int64(0)
			if o.Encoded() {
				stored = int64(o.Size())
			}
			require.Equal(t, stored, v.State().Bytes)
			require.Positive(t, o.Size())
			require.Equal(t, string(want.Raw()), string(o.Raw()))
			require.Equal(t, want.Kind(), o.Kind())
			require.Equal(t, want.APIVersion(), o.APIVersion())
			require.Equal(t, want.GetResourceVersion(), o.GetResourceVersion())
			require.NoError(t, x.Delete(c.in))
			coll, err := db.View("things")
			require.NoError(t, err)
			defer coll.Close()
			require.Zero(t, coll.State().Bytes, "also when its bytes were asked for")
		})
	}
}

// Objects that were put into the store without their Go form are decoded when they are read; one
// that can't be decoded is left out, and reported.
func TestEncodedInMemory(t *testing.T) {
	db := memory.New()
	var failed []error
	x := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"node": byNode}, informer.WithStore(db, "pods"),
		informer.WithReadErrorHandler(func(err error) { failed = append(failed, err) }))
	require.NoError(t, x.Add(pod("x", "a", "n1", 1)))
	coll, err := db.Open(mustInfo(t, db))
	require.NoError(t, err)
	r, err := coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply([]store.Change{
		storetest.Put(parse(t, `{"metadata":{"namespace":"x","name":"b","uid":"u","resourceVersion":"2"},"spec":{"nodeName":"n1"}}`)),
		storetest.Put(parse(t, `{"metadata":{"namespace":"x","name":"bad"},"spec":1}`)),
	}))
	require.NoError(t, r.Commit(storetest.Checkpoint(2)))
	require.NoError(t, coll.Close())
	b, ok, err := x.GetByKey("x/b")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "n1", b.(*corev1.Pod).Spec.NodeName)
	require.Len(t, x.List(), 2)
	require.Len(t, failed, 1)
	require.Contains(t, x.List(), b, "kept in the cache of decoded objects")
	_, _, err = x.GetByKey("x/bad")
	require.ErrorContains(t, err, "decode x/bad")
	byNamespace, err := x.Index(cache.NamespaceIndex, b)
	require.ErrorIs(t, err, store.ErrNoIndex)
	require.Empty(t, byNamespace)
}

func mustInfo(t *testing.T, db store.DB) store.Info {
	infos, err := db.Collections()
	require.NoError(t, err)
	require.Len(t, infos, 1)
	return infos[0]
}

// Handlers get the very objects that the store has, from the list and the watch.
func TestHandlersShareWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a")
		inf := newInformer(s)
		var last any
		_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { last = o }, UpdateFunc: func(_, o any) { last = o },
		})
		require.NoError(t, err)
		r := run(t, inf)
		for range 2 {
			synctest.Wait()
			stored, ok, err := inf.GetStore().GetByKey("ns/a")
			require.NoError(t, err)
			require.True(t, ok)
			require.Same(t, stored, last)
			s.put("a")
		}
		r.stop()
	})
}
