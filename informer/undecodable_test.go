package informer_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// podSpec is the number of a pod's field spec.
const podSpec = protowire.Number(2)

// damagedPod returns a pod as protobuf whose spec was changed: its type and metadata are readable,
// and the lengths of all fields around the spec are correct.
func damagedPod(t testing.TB, p *corev1.Pod, change func(spec []byte) []byte) []byte {
	message, err := p.Marshal()
	require.NoError(t, err)
	meta, err := object.ProtobufField(message, 1)
	require.NoError(t, err)
	spec, err := object.ProtobufField(message, podSpec)
	require.NoError(t, err)
	message = withFields(withFields(nil, 1, meta), podSpec, change(spec))
	raw, body := object.NewEnvelope("v1", "Pod").New(len(message))
	copy(body, message)
	require.Error(t, (&corev1.Pod{}).Unmarshal(body))
	return raw
}

var damages = []struct {
	name   string
	change func(spec []byte) []byte
}{
	{"cut", func(spec []byte) []byte { return spec[:len(spec)/2] }},
	{"flipped", func(spec []byte) []byte {
		spec[1] ^= 0x40 // the length of its first field
		return spec
	}},
	{"another wire type", func(spec []byte) []byte {
		spec[0] ^= 7
		return spec
	}},
	{"unfinished varint", func(spec []byte) []byte { return append(spec, 0xff) }},
}

// TestDamagedProtobufOnDisk starts an informer with a stored object whose protobuf is damaged behind
// the metadata: it reaches no handler and is reported once, and the other objects arrive. The server's
// next event of the object repairs it.
func TestDamagedProtobufOnDisk(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.put("a")
				s.put("b")
				s.put("c")
				db := boltDB(t, path)
				r := run(t, newInformer(s, informer.WithStore(db, "pods")))
				synctest.Wait()
				r.stop()
				damageStored(t, db, damagedPod(t, s.objects["b"], d.change))
				require.NoError(t, db.Close())
				s.counts()

				db = boltDB(t, path)
				var reported recorder
				inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, nil, informer.WithStore(db, "pods"), informer.WithScheme(core()),
					informer.WithReadErrorHandler(func(err error) { reported.add("%v", err) }))
				x := inf.GetIndexer().(*informer.Indexer)
				h, _ := subscribe(t, inf)
				r = run(t, inf)
				synctest.Wait()
				require.True(t, inf.HasSynced())
				require.Equal(t, []string{"add a@1 true", "add c@3 true"}, h.take())
				errs := reported.take()
				require.Len(t, errs, 1, "%q", errs)
				require.Contains(t, errs[0], "decode Pod ns/b")
				require.EqualValues(t, 1, x.ReadErrors())
				require.Zero(t, s.counts(), "no list")

				_, _, err := x.GetByKey("ns/b")
				require.ErrorContains(t, err, "decode Pod ns/b")
				require.Len(t, x.List(), 2)
				require.Equal(t, []string{"ns/a", "ns/b", "ns/c"}, x.ListKeys())
				require.EqualValues(t, 3, x.ReadErrors())
				late, _ := subscribe(t, inf)
				synctest.Wait()
				require.Equal(t, []string{"add a@1 true", "add c@3 true"}, late.take())

				s.put("d")
				s.put("b")
				synctest.Wait()
				require.Equal(t, []string{"add d@4 false", "add b@5 false"}, h.take())
				require.Len(t, x.List(), 4)
				r.stop()
				require.NoError(t, db.Close())
			})
		})
	}
}

// damageStored replaces an object of the collection pods, as if its bytes had been damaged before
// they were stored.
func damageStored(t *testing.T, db store.DB, raw []byte) {
	infos, err := db.Collections()
	require.NoError(t, err)
	coll, err := db.Open(infos[0])
	require.NoError(t, err)
	o, err := object.FromValid(raw)
	require.NoError(t, err)
	require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{{Key: o.Key(), Object: o}}, Checkpoint: coll.State().Checkpoint}))
}

// TestDamagedProtobufFromServer is the same with objects that are damaged when they arrive, in a list
// and in a watch. They are stored as they came.
func TestDamagedProtobufFromServer(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			db := boltDB(t, filepath.Join(t.TempDir(), "db"))
			var items [][]byte
			for n, name := range []string{"a", "b", "c"} {
				raw, err := pod("ns", name, "n1", n+1).Marshal()
				require.NoError(t, err)
				items = append(items, raw)
			}
			var err error
			items[1], err = object.ProtobufField(damagedPod(t, pod("ns", "b", "n1", 2), d.change)[object.ProtobufPrefixLen:], 2)
			require.NoError(t, err)
			last, err := protobufPods(t).Encode(pod("ns", "e", "n1", 14))
			require.NoError(t, err)
			var reported recorder
			factory, err := informer.NewFactory(informer.FactoryOptions{
				Config: protobufServer(t, gvk, items, [][]byte{damagedPod(t, pod("ns", "d", "n1", 13), d.change), last.Raw()}),
				Scheme: core(), Store: db,
				Informers: []informer.Option{informer.WithReadErrorHandler(func(err error) { reported.add("%v", err) })},
			})
			require.NoError(t, err)
			inf := factory.InformerFor(&corev1.Pod{})
			added := make(chan string, 10)
			_, err = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { added <- podRV(o) }})
			require.NoError(t, err)
			r := run(t, inf)
			for _, want := range []string{"a@1", "c@3", "e@14"} {
				require.Equal(t, want, <-added)
			}
			errs := reported.take()
			require.Len(t, errs, 2, "%q", errs)
			require.Contains(t, errs[0], "decode Pod ns/b")
			require.Contains(t, errs[1], "decode Pod ns/d")
			require.EqualValues(t, 2, inf.GetIndexer().(*informer.Indexer).ReadErrors())
			require.Len(t, inf.GetStore().ListKeys(), 5)
			r.stop()
			factory.Shutdown()
			require.NoError(t, db.Close())
		})
	}
}
