package informer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// gate is a recorder whose calls block until the test lets them through.
type gate struct {
	recorder
	leave chan struct{}
}

func (g *gate) OnAdd(o any, initial bool) { <-g.leave; g.recorder.OnAdd(o, initial) }
func (g *gate) OnUpdate(old, o any)       { <-g.leave; g.recorder.OnUpdate(old, o) }
func (g *gate) OnDelete(o any)            { <-g.leave; g.recorder.OnDelete(o) }

// filled is a synced collection.
func filled(t *testing.T, changes ...store.Change) store.Collection {
	coll := memoryCollection(t)
	fill(t, coll, changes...)
	return coll
}

func fill(t require.TestingT, coll store.Collection, changes ...store.Change) {
	r, err := coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(changes))
	require.NoError(t, r.Commit(store.Checkpoint{RV: "10"}))
}

func TestHandlersAndStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memoryCollection(t))
		p.list(t, store.ReasonInitial, "10", obj("a", "1", 3), obj("b", "2", 5))
		synctest.Wait()
		require.Equal(t, []string{"add a@3 true", "add b@5 true"}, p.rec.take())
		require.Equal(t, "10", p.coll.State().RV)
		require.True(t, p.coll.State().Synced)
		require.Equal(t, store.ReasonInitial, p.coll.State().ListReason)

		require.NoError(t, p.queue.Update(obj("a", "1", 11)))
		require.NoError(t, p.queue.Add(obj("c", "3", 12)))
		require.NoError(t, p.queue.Delete(obj("b", "2", 13)))
		require.NoError(t, p.queue.Bookmark("20"))
		synctest.Wait()
		require.Equal(t, []string{"update a@3 a@11", "add c@12 false", "delete b@13"}, p.rec.take())
		require.Equal(t, "20", p.coll.State().RV)

		// A relist brings only the differences: c is the same, d is new, a is missing.
		p.list(t, store.ReasonExpired, "30", obj("c", "3", 12), obj("d", "4", 25))
		synctest.Wait()
		require.Equal(t, []string{"delete unknown a@11", "add d@25 false"}, p.rec.take())
		require.EqualValues(t, 2, p.coll.State().Count)
	})
}

func TestLateHandlerGetsTheStoreFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := memoryCollection(t)
		r, err := coll.Replace()
		require.NoError(t, err)
		require.NoError(t, r.Apply([]store.Change{storetest.Put(obj("a", "1", 3))}))
		require.NoError(t, r.Commit(store.Checkpoint{RV: "5"}))
		p := start(t, coll)
		synctest.Wait()
		require.Equal(t, []string{"add a@3 true"}, p.rec.take())
	})
}

// The backlog of a slow handler is read late but has the states of when it was queued: the initial
// list of that time, then each change.
func TestBacklogHasStatesWhenQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := filled(t, storetest.Put(obj("a", "1", 3)), storetest.Put(obj("b", "2", 5)), storetest.Put(obj("c", "3", 6)))
		p := start(t, coll)
		g := &gate{leave: make(chan struct{})}
		reg, err := p.proc.AddHandler(g, cache.HandlerOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, p.queue.Update(obj("b", "2", 11)))
		require.NoError(t, p.queue.Delete(obj("c", "3", 12)))
		synctest.Wait()
		require.NoError(t, p.queue.Update(obj("b", "2", 13)))
		synctest.Wait()
		require.False(t, reg.HasSynced())
		close(g.leave)
		synctest.Wait()
		require.Equal(t, []string{
			"add a@3 true", "add b@5 true", "add c@6 true", "update b@5 b@11", "delete c@12", "update b@11 b@13",
		}, g.take())
		require.True(t, reg.HasSynced())
	})
}

// A handler that joins gets each change once: in its initial list or after it. The history and the
// moments of joining are random.
func TestJoinersSeeEachChangeOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db := memory.New()
		defer func() { require.NoError(t, db.Close()) }()
		coll, err := db.Open(storetest.Info("test"))
		require.NoError(t, err)
		fill(t, coll, storetest.Put(obj("a", "u", 1)), storetest.Put(obj("b", "u", 2)))
		q := deltafifo.New(deltafifo.Options{KnownObjects: pipeline.KnownObjects{Collection: coll}})
		q.Start("10")
		proc := informer.NewProcessor(informer.ProcessorOptions{Collection: coll})
		require.NoError(t, proc.Start())
		loop := pipeline.NewLoop(pipeline.LoopOptions{Queue: q, Collection: coll, Sinks: []pipeline.Sink{proc}})
		done := make(chan error, 1)
		go func() { done <- loop.Run(context.Background()) }()

		var joined []*last
		for n := range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				rec := &last{z: make(chan struct{})}
				_, err := proc.AddHandler(rec, cache.HandlerOptions{})
				require.NoError(t, err)
				joined = append(joined, rec)
			case 1:
				require.NoError(t, q.Delete(obj(name, "u", 11+n)))
			default:
				require.NoError(t, q.Update(obj(name, "u", 11+n)))
			}
		}
		require.NoError(t, q.Add(obj("z", "u", 100)))
		for _, rec := range joined {
			<-rec.z
		}
		q.Close()
		require.NoError(t, <-done)
		proc.Stop()
		want := map[string]string{}
		v, err := coll.View()
		require.NoError(t, err)
		defer v.Close()
		for o, err := range v.Objects("", "") {
			require.NoError(t, err)
			want[o.GetName()] = o.GetResourceVersion()
		}
		for _, rec := range joined {
			require.Equal(t, want, replay(t, rec.take()))
		}
	})
}

// last is a recorder that reports when it has got the object "z".
type last struct {
	recorder
	z chan struct{}
}

func (h *last) OnAdd(o any, initial bool) {
	h.recorder.OnAdd(o, initial)
	if strings.HasPrefix(rv(o), "z@") {
		close(h.z)
	}
}

// replay applies a handler's calls: adds of absent objects, updates and deletes of present ones. It
// returns the objects that are left.
func replay(t require.TestingT, calls []string) map[string]string {
	have := map[string]string{}
	at := func(s string) (name, rv string) {
		name, rv, ok := strings.Cut(s, "@")
		require.True(t, ok, s)
		return name, rv
	}
	for _, call := range calls {
		f := strings.Fields(call)
		object := f[1]
		if f[0] == "update" {
			object = f[2]
		}
		name, rv := at(object)
		switch f[0] {
		case "add":
			require.NotContains(t, have, name, "%v", calls)
		case "update":
			_, old := at(f[1])
			require.Equal(t, have[name], old, "%v", calls)
		case "delete":
			require.Contains(t, have, name, "%v", calls)
			delete(have, name)
			continue
		}
		have[name] = rv
	}
	return have
}

func TestResyncPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := filled(t, storetest.Put(obj("a", "1", 3)))
		p := startWith(t, coll, informer.ProcessorOptions{Resync: 10 * time.Second})
		handlers := map[string]*recorder{}
		add := func(name string, period time.Duration) {
			handlers[name] = &recorder{}
			_, err := p.proc.AddHandler(handlers[name], cache.HandlerOptions{ResyncPeriod: &period})
			require.NoError(t, err)
		}
		add("never", 0)
		add("too often", 5*time.Second) // gets the informer's 10 s
		add("seldom", 25*time.Second)   // served at the next check, after 30 s
		synctest.Wait()
		for _, h := range handlers {
			h.take()
		}
		p.rec.take()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.proc.Resyncs(ctx) }()
		for range 6 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		cancel()
		<-done
		require.Equal(t, slices.Repeat([]string{"update a@3 a@3"}, 6), p.rec.take(), "the informer's own period")
		require.Empty(t, handlers["never"].take())
		require.Equal(t, slices.Repeat([]string{"update a@3 a@3"}, 6), handlers["too often"].take())
		require.Equal(t, slices.Repeat([]string{"update a@3 a@3"}, 2), handlers["seldom"].take())
	})
}

// The shortest period asked for before the start is the check period, but at least a second.
func TestResyncCheckPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := filled(t, storetest.Put(obj("a", "1", 3)))
		proc := informer.NewProcessor(informer.ProcessorOptions{Collection: coll, Resync: time.Minute})
		fast, slow := &recorder{}, &recorder{}
		period := time.Millisecond
		_, err := proc.AddHandler(slow, cache.HandlerOptions{})
		require.NoError(t, err)
		_, err = proc.AddHandler(fast, cache.HandlerOptions{ResyncPeriod: &period})
		require.NoError(t, err)
		require.NoError(t, proc.Start())
		synctest.Wait()
		fast.take()
		slow.take()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); proc.Resyncs(ctx) }()
		time.Sleep(time.Minute + time.Millisecond)
		synctest.Wait()
		require.Len(t, fast.take(), 60)
		require.Len(t, slow.take(), 1)
		cancel()
		<-done
		proc.Stop()
	})
}

// A resync leaves out a handler that is still getting all objects, for its initial list or for the
// resync before.
func TestResyncSkipsHandlersWithBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := filled(t, storetest.Put(obj("a", "1", 3)), storetest.Put(obj("b", "1", 4)))
		p := startWith(t, coll, informer.ProcessorOptions{Resync: time.Second})
		g := &gate{leave: make(chan struct{})}
		_, err := p.proc.AddHandler(g, cache.HandlerOptions{})
		require.NoError(t, err)
		resync := func() {
			time.Sleep(time.Second)
			require.NoError(t, p.proc.Resync())
			synctest.Wait()
		}
		step := func() {
			g.leave <- struct{}{}
			synctest.Wait()
		}
		resync()
		step()
		resync()
		step()
		require.Equal(t, []string{"add a@3 true", "add b@4 true"}, g.take())
		resync()
		step()
		resync()
		step()
		require.Equal(t, []string{"update a@3 a@3", "update b@4 b@4"}, g.take())
		resync()
		close(g.leave)
		synctest.Wait()
		require.Equal(t, []string{"update a@3 a@3", "update b@4 b@4"}, g.take())
		require.Len(t, p.rec.take(), 2+5*2, "the other handlers don't wait for it")
	})
}

func TestRemovedHandlerIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, filled(t, storetest.Put(obj("a", "1", 3)), storetest.Put(obj("b", "1", 4))))
		g := &gate{leave: make(chan struct{})}
		reg, err := p.proc.AddHandler(g, cache.HandlerOptions{})
		require.NoError(t, err)
		synctest.Wait()
		p.proc.RemoveHandler(reg)
		p.proc.RemoveHandler(reg) // a second call does nothing
		select {
		case <-reg.ShutdownChan():
			t.Fatal("a call is going on")
		default:
		}
		close(g.leave)
		<-reg.ShutdownChan()
		require.Equal(t, []string{"add a@3 true"}, g.take())
		require.False(t, reg.HasSynced())
	})
}

// panicky panics at its first call.
type panicky struct {
	recorder
	done bool
}

func (h *panicky) OnAdd(o any, initial bool) {
	if !h.done {
		h.done = true
		panic("first")
	}
	h.recorder.OnAdd(o, initial)
}

// If the process survives a panic, the handler gets the next call after a pause.
func TestHandlerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		utilruntime.ReallyCrash = false
		defer func() { utilruntime.ReallyCrash = true }()
		p := start(t, filled(t, storetest.Put(obj("a", "1", 3)), storetest.Put(obj("b", "1", 4))))
		h := &panicky{}
		began := time.Now()
		reg, err := p.proc.AddHandler(h, cache.HandlerOptions{})
		require.NoError(t, err)
		<-reg.HasSyncedChecker().Done()
		require.Equal(t, time.Second, time.Since(began))
		synctest.Wait()
		require.Equal(t, []string{"add b@4 true"}, h.take())
	})
}

// A processor that has stopped takes no handlers, and its handlers get no calls.
func TestStoppedProcessor(t *testing.T) {
	coll := filled(t)
	proc := informer.NewProcessor(informer.ProcessorOptions{Collection: coll})
	reg, err := proc.AddHandler(&recorder{}, cache.HandlerOptions{})
	require.NoError(t, err)
	proc.Stop()
	<-reg.ShutdownChan()
	_, err = proc.AddHandler(&recorder{}, cache.HandlerOptions{})
	require.ErrorIs(t, err, informer.ErrStopped)
}

// Handlers get the values of Decode; an object that it can't decode reaches no handler and is
// reported.
func TestUndecodable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := filled(t, storetest.Put(obj("a", "1", 3)), storetest.Put(obj("b", "1", 4)))
		var reported []string
		p := startWith(t, coll, informer.ProcessorOptions{
			Decoding: func(bool) informer.Decode {
				return func(o *object.Object) (any, error) {
					if o.GetName() == "a" {
						return nil, fmt.Errorf("no %s today", o.GetName())
					}
					return o, nil
				}
			},
			OnError: func(err error) { reported = append(reported, err.Error()) },
		})
		synctest.Wait()
		require.Equal(t, []string{"add b@4 true"}, p.rec.take())
		require.Len(t, reported, 1)
		require.Contains(t, reported[0], "no a today")
		require.NoError(t, p.queue.Update(obj("a", "1", 11)))
		require.NoError(t, p.queue.Delete(obj("a", "1", 12)))
		synctest.Wait()
		require.Empty(t, p.rec.take())
	})
}

// If the old state of an object could not be read, handlers get a change as OnAdd, and a deletion without
// the object. The state before a list's change is read from the store.
func TestUnknownOldObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, filled(t, storetest.Put(obj("a", "1", 3))))
		for _, c := range []store.Changeset{
			{Transitions: []store.Transition{{Type: store.Modified, Key: "ns/a", RV: "2", Object: obj("a", "1", 2)}}},
			{List: true, Transitions: []store.Transition{{Type: store.Modified, Key: "ns/a", RV: "3"}}}, // read from the store
			{Transitions: []store.Transition{{Type: store.Deleted, Key: "ns/a"}}},
		} {
			synctest.Wait()
			require.NoError(t, p.proc.Commit(c, func() error { return nil }))
		}
		synctest.Wait()
		require.Equal(t, []string{"add a@3 true", "add a@2 false", "update a@3 a@3", "delete ns/a@unknown"}, p.rec.take())
	})
}
