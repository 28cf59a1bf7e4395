package informer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/internal/logging/logtest"
	"github.com/snapcache/snapcache/store"
)

// A handler that is added twice has two subscriptions, each with calls of its own.
func TestHandlerAddedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		inf := newInformer(s)
		h := &pods{}
		first, err := inf.AddEventHandler(h)
		require.NoError(t, err)
		second, err := inf.AddEventHandler(h)
		require.NoError(t, err)
		require.NotSame(t, first, second)
		r := run(t, inf)
		synctest.Wait()
		s.put("a")
		synctest.Wait()
		require.Equal(t, []string{"add a@1 false", "add a@1 false"}, h.take())
		require.NoError(t, inf.RemoveEventHandler(first))
		s.put("b")
		synctest.Wait()
		require.Equal(t, []string{"add b@2 false"}, h.take())
		r.stop()
	})
}

// Removing the registration of another informer has no effect, and a registration can be removed at
// any time.
func TestRemoveForeignAndLateRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		inf, other := newInformer(s), newInformer(s)
		h, reg := subscribe(t, inf)
		_, foreign := subscribe(t, other)
		require.NoError(t, inf.RemoveEventHandler(foreign))
		r := run(t, inf)
		synctest.Wait()
		s.put("a")
		synctest.Wait()
		require.Equal(t, []string{"add a@1 false"}, h.take())
		r.stop()
		require.NoError(t, inf.RemoveEventHandler(reg))
		require.NoError(t, cache.ShutDownEventHandler(inf, reg))
		require.NoError(t, cache.ShutDownEventHandler(other, foreign), "the other informer never ran")
	})
}

// The controller of an informer reports the informer's state and runs nothing.
func TestGetController(t *testing.T) {
	inf := newInformer(newServer())
	c := inf.GetController()
	c.Run(nil)
	c.RunWithContext(t.Context())
	require.False(t, c.HasSynced())
	require.False(t, cache.IsDone(c.HasSyncedChecker()))
	require.Empty(t, c.LastSyncResourceVersion())
	require.False(t, inf.IsStopped())
}

// client-go's generics get typed objects.
func TestTypedInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a")
		inf := cache.NewTypedSharedIndexInformer[*corev1.Pod](newInformer(s))
		r := run(t, inf)
		synctest.Wait()
		onNode, err := inf.GetTypedIndexer().ByTypedIndex("node", "n1")
		require.NoError(t, err)
		require.Equal(t, "a", onNode[0].Name)
		r.stop()
	})
}

// Several goroutines add handlers and indexers and remove handlers before, during and after the
// start of the informer, beside events. Each handler that stays has got the cache's content.
func TestConcurrentHandlersAndIndexers(t *testing.T) {
	s := newServer()
	inf := newInformer(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var stay []*pods
	var regs []cache.DoneChecker
	begin := make(chan struct{})
	for n := range 20 {
		wg.Go(func() {
			<-begin
			h, reg := subscribe(t, inf)
			if n%2 == 0 {
				mu.Lock()
				defer mu.Unlock()
				stay, regs = append(stay, h), append(regs, reg.HasSyncedChecker())
				return
			}
			if err := cache.ShutDownEventHandler(inf, reg); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() {
		<-begin
		if err := inf.AddIndexers(cache.Indexers{"letters": byLetters}); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		<-begin
		for range 200 {
			s.put("a")
			s.put("b")
			s.remove("b")
		}
	})
	go func() {
		defer close(done)
		<-begin
		inf.RunWithContext(ctx)
	}()
	close(begin)
	wg.Wait()
	z := make(chan struct{})
	_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		if o.(*corev1.Pod).Name == "z" {
			close(z)
		}
	}})
	require.NoError(t, err)
	require.True(t, cache.WaitFor(ctx, "", regs...))
	s.put("z")
	<-z
	for _, h := range stay {
		var calls []string
		for !hasZ(calls) {
			calls = append(calls, h.take()...)
		}
		have := replay(t, calls)
		delete(have, "z")
		require.Equal(t, map[string]string{"a": "598"}, have)
	}
	keys, err := inf.GetIndexer().IndexKeys("letters", "a")
	require.NoError(t, err)
	require.Equal(t, []string{"ns/a"}, keys)
	cancel()
	<-done
}

func hasZ(calls []string) bool {
	for _, call := range calls {
		if podOf(call) == "z" {
			return true
		}
	}
	return false
}

// client-go's own kinds of handlers work on our informer as on client-go's, and each logs to its
// own logger.
func TestHandlerTypes(t *testing.T) {
	onN1 := func(o any) bool { return o.(*corev1.Pod).Spec.NodeName == "n1" }
	calls := func(inf cache.SharedIndexInformer, s *server) (lines []string) {
		note := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		funcs := cache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    func(o any, initial bool) { note("add %s %v", podRV(o), initial) },
			UpdateFunc: func(old, o any) { note("update %s %s", podRV(old), podRV(o)) },
			DeleteFunc: func(o any) { note("delete %s", podRV(o)) },
		}
		_, err := inf.AddEventHandler(cache.FilteringResourceEventHandler{FilterFunc: onN1, Handler: funcs})
		require.NoError(t, err)
		_, err = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) {}})
		require.NoError(t, err)
		r := run(t, inf)
		for range 7 { // on n1 at every third
			synctest.Wait()
			s.put("a")
		}
		synctest.Wait()
		s.remove("a")
		synctest.Wait()
		r.stop()
		return lines
	}
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := newServer(), newServer()
		for _, s := range []*server{theirs, ours} {
			s.elsewhere()
			s.put("a")
		}
		want := calls(ofClientGo(t, theirs), theirs)
		require.Len(t, want, 4)
		require.Equal(t, want, calls(newInformer(ours), ours))

		var log bytes.Buffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		inf := newInformer(ours)
		utilruntime.ReallyCrash = false
		defer func() { utilruntime.ReallyCrash = true }()
		ours.put("b")
		_, err := inf.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { panic("of the handler") }}, cache.HandlerOptions{Logger: &logger})
		require.NoError(t, err)
		r := run(t, inf)
		synctest.Wait()
		r.stop()
		require.Contains(t, log.String(), "of the handler")
	})
}

// The name of a handler's checker ends in the handler's type; the errors of a stopped informer are client-go's.
func TestNamesOfHandlers(t *testing.T) {
	onStores(t, inTime, func(t *testing.T, reopen func() store.DB) {
		theirs, ours := ofClientGo(t, newServer()), newInformer(newServer(), withStore(reopen(), "pods"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		reg, err := ours.AddEventHandler(&pods{})
		require.NoError(t, err)
		name := "SharedIndexInformer *v1.Pod + event handler *informer_test.pods"
		require.Equal(t, name, reg.HasSyncedChecker().Name())
		theirs.RunWithContext(ctx)
		ours.RunWithContext(ctx)
		h := &pods{}
		_, theirErr := theirs.AddEventHandler(h)
		_, err = ours.AddEventHandler(h)
		require.EqualError(t, err, theirErr.Error())
		require.EqualError(t, ours.AddIndexers(nil), theirs.AddIndexers(nil).Error())
	})
}

// An informer logs to its context's logger, unless the program set another one: the lines of the
// reflector and those of objects that can't be indexed.
func TestLoggerOfTheContext(t *testing.T) {
	for _, c := range []struct {
		name string
		set  bool
	}{
		{name: "of the context"},
		{name: "of the program", set: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
				s := newServer()
				s.put("bad")
				var ofContext, ofProgram logtest.Buffer // klog's writers don't take turns
				opts := []informer.Option{withStore(reopen(), "pods")}
				if c.set {
					opts = append(opts, informer.WithLogger(slog.New(slog.NewTextHandler(&ofProgram, nil))))
				}
				inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, cache.Indexers{"node": func(any) ([]string, error) { return nil, errors.New("not today") }}, opts...)
				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&ofContext)))))
				done := make(chan struct{})
				go func() {
					defer close(done)
					inf.RunWithContext(ctx)
				}()
				synctest.Wait()
				cancel()
				<-done
				want, other := &ofContext, &ofProgram
				if c.set {
					want, other = other, want
				}
				require.Contains(t, want.String(), "listed")
				require.Contains(t, want.String(), "not today")
				require.Contains(t, want.String(), "collection")
				require.Empty(t, other.String())
			})
		})
	}
}
