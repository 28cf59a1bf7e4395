package informer_test

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// picky is a codec that can't encode pods whose node is "bad".
type picky struct{ informer.Codec }

func (p picky) Encode(obj runtime.Object) (*object.Object, error) {
	if obj.(*corev1.Pod).Spec.NodeName == "bad" {
		return nil, errors.New("can't be encoded")
	}
	return p.Codec.Encode(obj)
}

// An object that can't be stored leaves its stored state as it is, in an event and in a list; the
// error is reported and counted, and other objects are stored.
func TestUnstorableObjects(t *testing.T) {
	long := strings.Repeat("n", object.MaxKeyBytes)
	for _, c := range []struct {
		name  string
		spoil func(*corev1.Pod)
	}{
		{"encoding", func(p *corev1.Pod) { p.Spec.NodeName = "bad" }},
		{"key", func(p *corev1.Pod) { p.Name = long }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			synctest.Test(t, func(t *testing.T) {
				s, db, m := newServer(), boltDB(t, path), informer.NewMetrics()
				s.put("a")
				s.put("b")
				inf := newInformer(s, informer.WithStore(db, "pods"), informer.WithMetrics(m), informer.WithCodec(picky{informer.NewCodec(&corev1.Pod{}, core())}))
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
				h.take()
				s.set(func(s *server) {
					s.sent = func(p *corev1.Pod) {
						if p.Name == "a" && p.ResourceVersion == "3" {
							c.spoil(p)
						}
					}
				})
				s.put("a") // can't be stored
				s.put("b")
				synctest.Wait()
				require.Equal(t, []string{"update b@2 b@4"}, h.take())
				require.Equal(t, "4", inf.LastSyncResourceVersion())
				require.EqualValues(t, 1, scrape(t, m, "skipped_total", ""))
				mu.Lock()
				got := len(reported)
				mu.Unlock()
				require.Equal(t, 1, got)

				// And in a list.
				s.set(func(s *server) { s.compacted = s.rv })
				s.hangUp(watch.Event{Type: watch.Error, Object: status(410, metav1.StatusReasonExpired)})
				time.Sleep(time.Minute)
				s.put("b")
				synctest.Wait()
				if c.name == "encoding" { // under a name that is too long the object is not recognised as a
					require.Equal(t, []string{"update b@4 b@5"}, h.take())
					p, _, err := inf.GetStore().GetByKey("ns/a")
					require.NoError(t, err)
					require.Equal(t, "1", p.(*corev1.Pod).ResourceVersion)
				}
				require.EqualValues(t, 2, scrape(t, m, "skipped_total", ""))
				require.NoError(t, db.Flush())

				// The next state is stored as usual.
				h.take()
				s.put("a")
				s.remove("b")
				synctest.Wait()
				require.Len(t, h.take(), 2)
				require.Equal(t, []string{"ns/a"}, inf.GetStore().ListKeys())
				r.stop()
				require.NoError(t, db.Close())
			})
		})
	}
}

// A list under other rules replaces all stored objects.
func TestUnstorableInForcedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newServer(), boltDB(t, filepath.Join(t.TempDir(), "db"))
		s.put("a")
		s.put("b")
		r := run(t, newInformer(s, informer.WithStore(db, "pods")))
		synctest.Wait()
		r.stop()
		s.set(func(s *server) {
			s.sent = func(p *corev1.Pod) {
				if p.Name == "a" {
					p.Spec.NodeName = "bad"
				}
			}
		})
		inf := newInformer(s, informer.WithStore(db, "pods"), informer.WithScope(store.Scope{LabelSelector: "x"}),
			informer.WithCodec(picky{informer.NewCodec(&corev1.Pod{}, core())}))
		r = run(t, inf)
		synctest.Wait()
		require.Equal(t, []string{"ns/b"}, inf.GetStore().ListKeys())
		r.stop()
		require.NoError(t, db.Close())
	})
}

// An index value that is too long is left out of the index, and has no other effect, neither on the
// object nor on later writes.
func TestIndexValueTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	for _, open := range []func() store.DB{func() store.DB { return boltDB(t, path) }, func() store.DB { return boltDB(t, path) }} {
		db := open()
		reported := make(chan error, 100) // also from the goroutine that builds the index
		long := strings.Repeat("v", store.MaxIndexValueBytes+1)
		x := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"node": func(obj any) ([]string, error) {
			return []string{obj.(*corev1.Pod).Spec.NodeName, obj.(*corev1.Pod).Name}, nil
		}}, informer.WithStore(db, "pods"), informer.WithReadErrorHandler(func(err error) { reported <- err }))
		require.NoError(t, x.Add(pod("x", "a", long, 1)))
		require.NoError(t, x.Add(pod("x", "b", "n1", 2)))
		require.NoError(t, db.Flush())
		require.ErrorContains(t, <-reported, "too long")
		require.Len(t, x.List(), 2)
		require.Equal(t, []string{"a", "b", "n1"}, x.ListIndexFuncValues("node"))
		require.NoError(t, db.Close()) // folds
	}
}
