package informer_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
)

// Dropped fields reach neither the store nor handlers, from a list and from a watch; other paths
// make a list.
func TestWithDrop(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []informer.Option
	}{
		{"protobuf", nil},
		{"JSON", []informer.Option{informer.WithCodec(informer.NewCodec(&corev1.Pod{}, core()))}},
		{"all decoded", []informer.Option{informer.WithDecoded(informer.All)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "db")
				s := newServer()
				s.put("a")
				s.set(func(s *server) {
					s.objects["a"].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
				})
				lists := func(paths ...string) *corev1.Pod {
					db := boltDB(t, path)
					inf := newInformer(s, informer.WithStore(db, "pods"), informer.WithDrop(paths...), informer.Join(c.opts...))
					r := run(t, inf)
					synctest.Wait()
					if len(paths) == 2 {
						s.put("b")
						synctest.Wait()
						b, _, err := inf.GetStore().GetByKey("ns/b")
						require.NoError(t, err)
						require.Empty(t, b.(*corev1.Pod).Labels, "from the watch")
					}
					a, exists, err := inf.GetStore().GetByKey("ns/a")
					require.NoError(t, err)
					require.True(t, exists)
					r.stop()
					require.NoError(t, db.Close())
					return a.(*corev1.Pod)
				}
				require.NotEmpty(t, lists().ManagedFields)
				require.Equal(t, 1, s.counts())
				require.Empty(t, lists(object.ManagedFields).ManagedFields)
				require.Equal(t, 1, s.counts(), "other paths")
				require.NotEmpty(t, lists(object.ManagedFields).Labels)
				require.Zero(t, s.counts(), "the same paths")
				a := lists(object.ManagedFields, "metadata.labels")
				require.Empty(t, a.Labels)
				require.Empty(t, a.ManagedFields)
				require.Equal(t, 1, s.counts())
			})
		})
	}
}

// A path that leads nowhere is an error of the informer, not a field that stays.
func TestWithDropErrors(t *testing.T) {
	x := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithStore(boltDB(t, filepath.Join(t.TempDir(), "db")), "pods"), informer.WithDrop("spec.nodeNames"))
	_, _, err := x.GetByKey("ns/a")
	require.ErrorContains(t, err, `drop spec.nodeNames from a v1.Pod: there is no field "nodeNames"`)
}
