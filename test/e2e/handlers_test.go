package e2e

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	"github.com/snapcache/snapcache/upstream"
)

// TestHandlersGetOnlyChanges connects the library's packages to a pipeline with a handler at
// its end, and lets the checkpoint expire between two runs. After the relist the handler must have
// been called once for each change, and for nothing else.
func TestHandlersGetOnlyChanges(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, expiredSeed))
	path := filepath.Join(t.TempDir(), "cache.db")

	first := runPipeline(t, cp, path)
	first.awaitSame(t, cp)
	first.stop()
	seeded := onServer(t, cp, "configmaps")
	require.Equal(t, keysOf(seeded), first.handler.sorted("added first"), "every object is added")
	require.Equal(t, []string{"added first"}, first.handler.kinds(), "no other calls")

	updated, deleted, added := changeConfigMaps(t, cp)
	forget(t, cp)

	second := runPipeline(t, cp, path)
	second.awaitSame(t, cp)
	second.stop()
	require.Equal(t, []store.Reason{store.ReasonExpired}, second.reasons, "why it was listed")
	require.Equal(t, keysOf(seeded), second.handler.sorted("added first"), "stored objects come first")
	require.Equal(t, slices.Sorted(slices.Values(updated)), second.handler.sorted("updated"))
	require.Equal(t, slices.Sorted(slices.Values(deleted)), second.handler.sorted("deleted"))
	require.Equal(t, slices.Sorted(slices.Values(added)), second.handler.sorted("added"))
	require.Equal(t, []string{"added", "added first", "deleted", "updated"}, second.handler.kinds())
	for key, calls := range second.handler.calls {
		require.LessOrEqual(t, len(calls), 2, "%s: %v", key, calls)
	}
}

// configMaps are kept in a database, as the agent keeps them.
type configMaps struct {
	reflector.NopObserver
	collection store.Collection
	handler    *recorder
	stop       func()

	mu      sync.Mutex
	reasons []store.Reason
}

// Listed records the reason of a list.
func (p *configMaps) Listed(reason store.Reason, _ string, _ int64, _ time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reasons = append(p.reasons, reason)
}

func runPipeline(t *testing.T, cp *controlplane.ControlPlane, path string) *configMaps {
	t.Helper()
	cluster, err := upstream.New(cp.RESTConfig(controlplane.Admin))
	require.NoError(t, err)
	resource, err := cluster.Resolve(t.Context(), "configmaps", "", "")
	require.NoError(t, err)
	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	prune := object.NewPrune(object.ManagedFields)
	info := store.Info{
		ID: "configmaps", Version: "v1", Resource: "configmaps", Kind: resource.Kind, Namespaced: true, Transform: prune.ID(),
	}
	p := &configMaps{handler: &recorder{t: t, calls: make(map[string][]string)}}
	p.collection, err = db.Open(info)
	require.NoError(t, err)
	reason, checkpoint := pipeline.ListReason(p.collection.Info(), info, p.collection.State()), p.collection.State().Checkpoint

	queue := deltafifo.New(deltafifo.Options{KnownObjects: pipeline.KnownObjects{Collection: p.collection}})
	queue.Start(checkpoint.RV)
	processor := informer.NewProcessor(informer.ProcessorOptions{Collection: p.collection})
	_, err = processor.AddHandler(p.handler, cache.HandlerOptions{})
	require.NoError(t, err)
	require.NoError(t, processor.Start())
	refl := reflector.New(reflector.Options{
		Queue: queue, Identity: cluster.Identity, Kind: resource.Kind,
		Source:     cluster.Source(upstream.SourceOptions{Resource: resource, Prune: prune}),
		Checkpoint: checkpoint, Reason: reason, Observer: p,
	})
	loop := pipeline.NewLoop(pipeline.LoopOptions{
		Queue: queue, Collection: p.collection, Sinks: []pipeline.Sink{processor},
	})

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := refl.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("reflector: %v", err)
		}
	})
	wg.Go(func() {
		if err := loop.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("loop: %v", err)
		}
	})
	end := sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		queue.Close()
		processor.Stop()
		cluster.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	p.stop = end
	return p
}

// awaitSame waits until store and handler have what the server has.
func (p *configMaps) awaitSame(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	want := onServer(t, cp, "configmaps")
	at := want.newest()
	poll(t, "the pipeline is at "+at, nil, func(context.Context) (bool, error) {
		rv := p.collection.State().RV
		return rv != "" && compareRV(t)(rv, at) >= 0, nil
	})
	v, err := p.collection.View()
	require.NoError(t, err)
	defer v.Close()
	got := content{}
	for o, err := range v.Objects("", "") {
		require.NoError(t, err)
		u := &unstructured.Unstructured{}
		require.NoError(t, u.UnmarshalJSON(o.Raw()))
		got.add(t, u.Object)
	}
	requireSame(t, "configmaps", want, got)
	// Handlers are called after the store's write, at their own pace.
	poll(t, "the handler has everything", nil, func(context.Context) (bool, error) {
		return slices.Equal(keysOf(want), p.handler.holds()), nil
	})
}

// recorder is a handler that records its calls.
type recorder struct {
	t     *testing.T
	mu    sync.Mutex
	calls map[string][]string // by key
	held  map[string]string   // resourceVersions by key, as a handler would know them
}

var _ cache.ResourceEventHandler = (*recorder)(nil)

// OnAdd records a new object.
func (r *recorder) OnAdd(obj any, isInInitialList bool) {
	call := "added"
	if isInInitialList {
		call += " first"
	}
	r.note(call, nil, obj)
}

// OnUpdate records a change.
func (r *recorder) OnUpdate(old, obj any) { r.note("updated", old, obj) }

// OnDelete records a deletion.
func (r *recorder) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	r.note("deleted", obj, nil)
}

// note checks that a call is consistent with those before, and records it.
func (r *recorder) note(call string, old, obj any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = make(map[string]string)
	}
	is, isOK := obj.(*object.Object)
	was, wasOK := old.(*object.Object)
	if isOK != (obj != nil) || wasOK != (old != nil) {
		r.t.Errorf("%s with a %T and a %T", call, old, obj)
		return
	}
	o := is
	if o == nil {
		o = was
	}
	key := o.Key()
	r.calls[key] = append(r.calls[key], call)
	held, known := r.held[key]
	if known != (was != nil) || was != nil && held != was.GetResourceVersion() {
		r.t.Errorf("%s %s: the old object is not the one that the handler had", key, call)
	}
	if is == nil {
		delete(r.held, key)
		return
	}
	r.held[key] = is.GetResourceVersion()
}

// holds returns the keys of the objects that exist for the handler.
func (r *recorder) holds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.held))
}

// sorted returns the keys for which a call was made.
func (r *recorder) sorted(call string) []string {
	var keys []string
	for key, calls := range r.calls {
		if slices.Contains(calls, call) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// kinds returns the calls that were made, each once.
func (r *recorder) kinds() []string {
	kinds := make(map[string]bool)
	for _, calls := range r.calls {
		for _, call := range calls {
			kinds[call] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

func keysOf(c content) []string { return slices.Sorted(maps.Keys(c)) }
