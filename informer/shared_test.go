package informer_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
)

// pods is a recorder of typed pods.
type pods struct{ recorder }

func podRV(o any) string {
	switch o := o.(type) {
	case *corev1.Pod:
		return o.Name + "@" + o.ResourceVersion
	case cache.DeletedFinalStateUnknown:
		if o.Obj == nil {
			return o.Key + "@unknown"
		}
		return "unknown " + podRV(o.Obj)
	}
	return fmt.Sprintf("%T", o)
}

func (r *pods) OnAdd(o any, initial bool) { r.add("add %s %v", podRV(o), initial) }
func (r *pods) OnUpdate(old, o any)       { r.add("update %s %s", podRV(old), podRV(o)) }
func (r *pods) OnDelete(o any)            { r.add("delete %s", podRV(o)) }

// running is an informer that runs until stop is called.
type running struct {
	cache.SharedIndexInformer
	stop func()
}

func run(t testing.TB, inf cache.SharedIndexInformer) *running {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	r := &running{inf, sync.OnceFunc(func() { cancel(); <-done })}
	t.Cleanup(r.stop)
	return r
}

func subscribe(t testing.TB, inf cache.SharedInformer) (*pods, cache.ResourceEventHandlerRegistration) {
	h := &pods{}
	r, err := inf.AddEventHandler(h)
	require.NoError(t, err)
	return h, r
}

// storedAsJSON makes the informers of newInformer store JSON, so that a second run of the tests shows
// the same with that form. A test of one form gives its codec.
var storedAsJSON = flag.Bool("stored.json", false, "store objects as JSON")

func newInformer(s *server, opts ...informer.Option) cache.SharedIndexInformer {
	all := []informer.Option{informer.WithScheme(core())}
	if *storedAsJSON {
		all = append(all, informer.WithCodec(informer.NewCodec(&corev1.Pod{}, core())))
	}
	return informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, cache.Indexers{"node": byNode}, append(all, opts...)...)
}

func TestSharedIndexInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a")
		inf := newInformer(s)
		h, reg := subscribe(t, inf)
		require.False(t, inf.HasSynced())
		require.False(t, reg.HasSynced())
		require.Empty(t, inf.LastSyncResourceVersion())
		require.Equal(t, "SharedIndexInformer *v1.Pod", inf.HasSyncedChecker().Name())
		r := run(t, inf)
		require.True(t, cache.WaitFor(t.Context(), "", inf.HasSyncedChecker(), reg.HasSyncedChecker()))
		require.True(t, inf.HasSynced())
		require.True(t, inf.GetController().HasSynced())
		require.Equal(t, []string{"add a@1 true"}, h.take())

		s.put("b")
		s.put("a")
		s.remove("b")
		synctest.Wait()
		require.ElementsMatch(t, []string{"add b@2 false", "update a@1 a@3", "delete b@4"}, h.take())
		require.Equal(t, "4", inf.LastSyncResourceVersion())
		require.Equal(t, "4", inf.GetController().LastSyncResourceVersion())
		require.Equal(t, []string{"ns/a"}, inf.GetStore().ListKeys())

		// A late joiner, an indexer added late.
		late, lateReg := subscribe(t, inf)
		synctest.Wait()
		require.True(t, lateReg.HasSynced())
		require.Equal(t, []string{"add a@3 true"}, late.take())
		require.NoError(t, inf.AddIndexers(cache.Indexers{"letters": byLetters}))
		require.Error(t, inf.AddIndexers(cache.Indexers{"letters": byLetters}), "the name is taken")
		s.put("ab")
		synctest.Wait()
		keys, err := inf.GetIndexer().IndexKeys("letters", "a")
		require.NoError(t, err)
		require.Equal(t, []string{"ns/a", "ns/ab"}, keys)

		require.NoError(t, cache.ShutDownEventHandler(inf, lateReg))
		require.NoError(t, inf.RemoveEventHandler(lateReg))
		require.Error(t, inf.RemoveEventHandler(nil))
		late.take()
		s.put("c")
		synctest.Wait()
		require.Empty(t, late.take())
		require.Equal(t, []string{"add ab@5 false", "add c@6 false"}, h.take())

		inf.Run(nil) // a second time returns at once
		require.False(t, inf.IsStopped())
		r.stop()
		require.True(t, inf.IsStopped())
		_, err = inf.AddEventHandler(nil)
		require.ErrorIs(t, err, informer.ErrStopped)
		require.EqualError(t, err, "handler <nil> was not added to shared informer because it has stopped already")
		err = inf.AddIndexers(cache.Indexers{})
		require.ErrorIs(t, err, informer.ErrStopped)
		require.EqualError(t, err, "indexer was not added because it has stopped already")
		require.Len(t, inf.GetStore().List(), 3, "the indexer of a stopped informer can be read")
	})
}

// A collection that was never listed is not an empty one: handlers get nothing of a store without a
// complete list, and HasSynced waits for the list.
func TestNeverSyncedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a")
		s.set(func(s *server) { s.listErr = errors.New("down") })
		inf := newInformer(s)
		h, reg := subscribe(t, inf)
		var reported []string
		require.NoError(t, inf.SetWatchErrorHandler(func(r *cache.Reflector, err error) {
			cache.DefaultWatchErrorHandler(t.Context(), r, apierrors.NewResourceExpired("which is not worth a line"))
			reported = append(reported, err.Error())
		}))
		r := run(t, inf)
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, inf.HasSynced())
		require.False(t, reg.HasSynced())
		require.NotEmpty(t, reported)
		require.Contains(t, reported[0], "down")
		require.Error(t, inf.SetWatchErrorHandler(nil), "too late")
		require.Error(t, inf.SetTransform(nil), "too late")
		s.set(func(s *server) { s.listErr = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, reg.HasSynced())
		require.Equal(t, []string{"add a@1 true"}, h.take())
		r.stop()
	})
}

// The transform gets each object first, deleted ones too.
func TestTransform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a")
		inf := newInformer(s)
		seen := 0
		require.NoError(t, inf.SetTransform(func(o any) (any, error) {
			seen++
			p := o.(*corev1.Pod)
			if p.Name == "bad" {
				return nil, errors.New("don't like it")
			}
			p.Labels = nil
			return p, nil
		}))
		var labels []map[string]string
		_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { labels = append(labels, o.(*corev1.Pod).Labels) },
			DeleteFunc: func(o any) { labels = append(labels, o.(*corev1.Pod).Labels) },
		})
		require.NoError(t, err)
		r := run(t, inf)
		synctest.Wait()
		s.put("bad") // skipped
		s.put("b")
		s.remove("b")
		synctest.Wait()
		require.Equal(t, []map[string]string{nil, nil, nil}, labels)
		require.Equal(t, 4, seen)
		require.Len(t, inf.GetStore().List(), 1)
		r.stop()
	})
}

// An object of another type is skipped.
func TestWrongType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		inf := newInformer(s)
		h, _ := subscribe(t, inf)
		r := run(t, inf)
		synctest.Wait()
		s.set(func(s *server) {
			s.rv++
			s.events = append(s.events, watch.Event{Type: watch.Added, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}}})
		})
		s.put("a")
		synctest.Wait()
		require.Equal(t, []string{"add a@2 false"}, h.take())
		r.stop()
	})
}

// With *object.Object as the example, an informer hands out objects in their stored form, without
// Go types.
func TestRawObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a")
		inf := informer.NewSharedIndexInformer(s, &object.Object{}, 0, nil)
		rec := &recorder{}
		_, err := inf.AddEventHandler(rec)
		require.NoError(t, err)
		r := run(t, inf)
		synctest.Wait()
		s.put("a")
		synctest.Wait()
		require.Equal(t, []string{"add a@1 true", "update a@1 a@2"}, rec.take())
		o, ok, err := inf.GetStore().GetByKey("ns/a")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "2", o.(*object.Object).GetResourceVersion())
		r.stop()
	})
}

// A list that takes no context does not hold up the end.
func TestListWithoutContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		inf := informer.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (k8sruntime.Object, error) { // which it does not look at
				<-answer
				return &corev1.PodList{}, nil
			},
		}, &corev1.Pod{}, 0, nil)
		r := run(t, inf)
		synctest.Wait()
		r.stop()
		require.True(t, inf.IsStopped())
		close(answer)
	})
}

// Periods of the informer and of its handlers; see also TestResyncPeriods.
func TestInformerResyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a")
		inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 30*time.Second, nil)
		every, never := &pods{}, &pods{}
		_, err := inf.AddEventHandler(every)
		require.NoError(t, err)
		_, err = inf.AddEventHandlerWithResyncPeriod(never, 0)
		require.NoError(t, err)
		r := run(t, inf)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"add a@1 true", "update a@1 a@1", "update a@1 a@1"}, every.take())
		require.Equal(t, []string{"add a@1 true"}, never.take())
		r.stop()
	})
}

// The mutation detector reports a change of a shared object, if client-go's environment variable
// turns it on. The variable is read when the program starts, so the test starts one.
func TestMutationDetector(t *testing.T) {
	if os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") == "true" {
		s := newServer()
		s.put("a")
		inf := newInformer(s)
		run(t, inf)
		require.True(t, cache.WaitFor(t.Context(), "", inf.HasSyncedChecker()))
		inf.GetStore().List()[0].(*corev1.Pod).Spec.NodeName = "mine"
		<-t.Context().Done() // the detector ends the program before
		return
	}
	cmd := again(t, "TestMutationDetector", "KUBE_CACHE_MUTATION_DETECTOR=true")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "cache *v1.Pod modified")
	require.NotContains(t, string(out), "test timed out")
}

// Informers that are started and stopped at any moment leave no goroutines. TestMain checks that.
func TestStartStopLeavesNoGoroutines(t *testing.T) {
	s := newServer()
	for _, name := range []string{"a", "b", "c"} {
		s.put(name)
	}
	db := boltDB(t, filepath.Join(t.TempDir(), "db"))
	for n := range 1000 {
		var opts []informer.Option
		if n%10 == 0 {
			opts = append(opts, informer.WithStore(db, "pods"))
		}
		inf := newInformer(s, opts...)
		h, reg := subscribe(t, inf)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			inf.RunWithContext(ctx)
		}()
		switch n % 4 {
		case 0: // at once
		case 1:
			require.True(t, cache.WaitFor(ctx, "", inf.HasSyncedChecker()))
		case 2:
			require.True(t, cache.WaitFor(ctx, "", reg.HasSyncedChecker()))
			require.NoError(t, cache.ShutDownEventHandler(inf, reg))
		case 3:
			s.put("a")
			_, err := inf.AddEventHandler(&pods{})
			require.NoError(t, err)
		}
		cancel()
		<-done
		require.True(t, inf.IsStopped())
		h.take()
		s.forget()
	}
	require.NoError(t, db.Close())
	require.NoError(t, goleak.Find())
}

// An informer that was made without resyncs does none, even if a handler asks for one.
func TestInformerWithoutResyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a")
		inf := newInformer(s)
		early, late := &pods{}, &pods{}
		_, err := inf.AddEventHandlerWithResyncPeriod(early, time.Minute)
		require.NoError(t, err)
		r := run(t, inf)
		_, err = inf.AddEventHandlerWithResyncPeriod(late, time.Minute)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"add a@1 true"}, early.take())
		require.Equal(t, []string{"add a@1 true"}, late.take())
		r.stop()
	})
}
