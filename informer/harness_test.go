package informer_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func obj(name, uid string, rv int) *object.Object {
	return storetest.Object("ns", name, uid, strconv.Itoa(rv), nil, "x")
}

// recorder is a handler that records its calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func rv(o any) string {
	switch o := o.(type) {
	case *object.Object:
		return o.GetName() + "@" + o.GetResourceVersion()
	case cache.DeletedFinalStateUnknown:
		if o.Obj == nil {
			return o.Key + "@unknown"
		}
		return "unknown " + rv(o.Obj)
	}
	return fmt.Sprintf("%T", o)
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// drop waits until there are n calls, and forgets them.
func (r *recorder) drop(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.calls) == n
	}, time.Minute, time.Millisecond)
	r.take()
}

func (r *recorder) OnAdd(o any, initial bool) { r.add("add %s %v", rv(o), initial) }
func (r *recorder) OnUpdate(old, o any)       { r.add("update %s %s", rv(old), rv(o)) }
func (r *recorder) OnDelete(o any)            { r.add("delete %s", rv(o)) }

// harness is queue, loop, collection and one handler.
type harness struct {
	queue *deltafifo.Queue
	coll  store.Collection
	proc  *informer.Processor
	rec   *recorder
}

func start(t *testing.T, coll store.Collection) *harness {
	return startWith(t, coll, informer.ProcessorOptions{})
}

func startWith(t *testing.T, coll store.Collection, opts informer.ProcessorOptions) *harness {
	return startQueue(t, coll, 0, deltafifo.Options{}, opts)
}

// startQueue is startWith with a loop that begins with each batch of events after a while.
func startQueue(t *testing.T, coll store.Collection, takes time.Duration, queue deltafifo.Options, opts informer.ProcessorOptions) *harness {
	queue.KnownObjects = pipeline.KnownObjects{Collection: coll}
	q := deltafifo.New(queue)
	q.Start(coll.State().RV)
	opts.Collection = coll
	proc := informer.NewProcessor(opts)
	rec := &recorder{}
	_, err := proc.AddHandler(rec, cache.HandlerOptions{})
	require.NoError(t, err)
	require.NoError(t, proc.Start())
	loop := pipeline.NewLoop(pipeline.LoopOptions{
		Queue: q, Collection: coll, Sinks: []pipeline.Sink{proc},
		Around: func(b deltafifo.Batch, apply func() error) error {
			if !b.List {
				time.Sleep(takes)
			}
			return apply()
		},
	})
	done := make(chan error, 1)
	go func() { done <- loop.Run(context.Background()) }()
	t.Cleanup(func() {
		q.Close()
		require.NoError(t, <-done)
		proc.Stop()
	})
	return &harness{queue: q, coll: coll, proc: proc, rec: rec}
}

func (p *harness) list(t *testing.T, reason store.Reason, rv string, objects ...*object.Object) {
	require.NoError(t, p.queue.BeginReplace(t.Context(), deltafifo.Replace{Reason: string(reason), Cluster: "c", Force: !reason.TrustsVersions()}))
	for _, o := range objects {
		require.NoError(t, p.queue.ReplaceItem(o))
	}
	require.NoError(t, p.queue.EndReplace(rv))
}

func memoryCollection(t *testing.T) store.Collection {
	db := memory.New()
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c, err := db.Open(storetest.Info("test"))
	require.NoError(t, err)
	return c
}
