package informer_test

import (
	"net/http"
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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	framework "k8s.io/client-go/tools/cache/testing"

	"github.com/snapcache/snapcache/informer"
)

// fakeClient lists and watches as an author's unit test does, with resourceVersions that
// never change.
type fakeClient struct {
	mu    sync.Mutex
	rv    string // of lists
	pods  []corev1.Pod
	watch watch.Interface
}

func (f *fakeClient) List(metav1.ListOptions) (runtime.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: f.rv}, Items: slices.Clone(f.pods)}, nil
}

func (f *fakeClient) Watch(metav1.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watch, nil
}

func (f *fakeClient) set(w watch.Interface, pods ...corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch, f.pods = w, pods
}

// plainWatch hides that a watch is one of apimachinery's fakes.
type plainWatch struct{ watch.Interface }

func fakePod(rv, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: rv}, Spec: corev1.PodSpec{NodeName: node}}
}

// nodes is a handler that records the node of each pod that it gets.
func nodes(rec *recorder) cache.ResourceEventHandler {
	node := func(o any) string {
		if missing, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = missing.Obj
		}
		return o.(*corev1.Pod).Spec.NodeName
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { rec.add("add %s", node(o)) },
		UpdateFunc: func(old, o any) { rec.add("update %s %s", node(old), node(o)) },
		DeleteFunc: func(o any) { rec.add("delete %s", node(o)) },
	}
}

// An update under the resourceVersion of before reaches store and handlers if the client is
// a fake, and changes nothing if it may be a real one.
func TestUpdateUnderTheSameResourceVersion(t *testing.T) {
	stores := []struct {
		name string
		opts func(t *testing.T) []informer.Option
	}{
		{"in memory", func(*testing.T) []informer.Option { return nil }},
		{"on disk", func(t *testing.T) []informer.Option {
			db := boltDB(t, filepath.Join(t.TempDir(), "cache.db"))
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			return []informer.Option{informer.WithStore(db, "pods")}
		}},
	}
	for _, s := range stores {
		for _, tc := range []struct {
			name         string
			list, object string // resourceVersions
			plain        bool   // the watch is not one of apimachinery's fakes
			taken        bool
		}{
			{"fake watch", "5", "1", false, true},
			{"fake watch, no resourceVersion", "5", "", false, true},
			{"list without resourceVersion", "", "1", true, true},
			{"list at 0", "0", "1", true, true},
			{"real", "5", "1", true, false},
		} {
			t.Run(s.name+", "+tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fake, w := &fakeClient{rv: tc.list}, watch.NewRaceFreeFake()
					opened := watch.Interface(w)
					if tc.plain {
						opened = plainWatch{w}
					}
					fake.set(opened, *fakePod(tc.object, "one"))
					inf := informer.NewSharedIndexInformer(fake, &corev1.Pod{}, 0, cache.Indexers{"node": func(o any) ([]string, error) {
						return []string{o.(*corev1.Pod).Spec.NodeName}, nil
					}}, s.opts(t)...)
					rec := &recorder{}
					_, err := inf.AddEventHandler(nodes(rec))
					require.NoError(t, err)
					r := run(t, inf)
					defer r.stop()
					synctest.Wait()
					require.Equal(t, []string{"add one"}, rec.take())
					content := func() []string {
						list, err := inf.GetIndexer().ByIndex("node", "two")
						require.NoError(t, err)
						var all []string
						for _, o := range append(list, inf.GetStore().List()...) {
							all = append(all, o.(*corev1.Pod).Spec.NodeName)
						}
						return all
					}
					require.Equal(t, []string{"one"}, content())

					w.Modify(fakePod(tc.object, "two"))
					synctest.Wait()
					if !tc.taken {
						require.Empty(t, rec.take())
						require.Equal(t, []string{"one"}, content())
						return
					}
					require.Equal(t, []string{"update one two"}, rec.take())
					require.Equal(t, []string{"two", "two"}, content())
					if tc.object != "" {
						w.Add(fakePod(tc.object, "two")) // a replay
						synctest.Wait()
						require.Empty(t, rec.take())
					}
					w.Modify(fakePod(tc.object, "two"))
					synctest.Wait()
					require.Equal(t, []string{"update two two"}, rec.take())
					w.Add(fakePod(tc.object, "three"))
					synctest.Wait()
					require.Equal(t, []string{"update two three"}, rec.take())

					// A list under the same resourceVersion.
					next := watch.NewRaceFreeFake()
					fake.set(next, *fakePod(tc.object, "four"))
					w.Error(status(http.StatusGone, metav1.StatusReasonExpired))
					time.Sleep(time.Minute) // simulated
					synctest.Wait()
					require.Equal(t, []string{"update three four"}, rec.take())
					next.Delete(fakePod(tc.object, "four"))
					synctest.Wait()
					require.Equal(t, []string{"delete four"}, rec.take())
					require.Empty(t, inf.GetStore().List())
				})
			})
		}
	}
}

// FakeControllerSource of client-go's own tests: an empty list is at "0", a watch from there begins
// with the missed events, and one that was reset has expired.
func TestFakeControllerSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := framework.NewFakeControllerSource()
		inf := informer.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil)
		rec := &recorder{}
		_, err := inf.AddEventHandler(nodes(rec))
		require.NoError(t, err)
		r := run(t, inf)
		synctest.Wait()
		require.True(t, inf.HasSynced())
		source.Add(fakePod("", "one"))
		synctest.Wait()
		require.Equal(t, []string{"add one"}, rec.take())
		source.Modify(fakePod("", "two"))
		synctest.Wait()
		require.Equal(t, []string{"update one two"}, rec.take())
		source.ModifyDropWatch(fakePod("", "three"))
		ended := source.Broadcaster // not ResetWatch, which forgets the missed event
		source.Broadcaster = watch.NewBroadcaster(100, watch.WaitIfChannelFull)
		ended.Shutdown()
		time.Sleep(time.Minute) // simulated
		synctest.Wait()
		require.Equal(t, []string{"update two three"}, rec.take())
		source.DeleteDropWatch(fakePod("", "three"))
		source.ResetWatch()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"delete three"}, rec.take())
		require.Empty(t, inf.GetStore().List())
		r.stop()
		source.Shutdown()
	})
}
