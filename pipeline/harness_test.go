package pipeline_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/deltafifo"
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

// recorder is a sink that records the transitions that it gets, with the states before them.
type recorder struct {
	coll        store.Collection
	transitions []string
}

func (*recorder) Wanted(bool) bool { return true }

func (r *recorder) Commit(c store.Changeset, apply func() error) error {
	for i := range c.Transitions {
		if t := &c.Transitions[i]; c.List && t.Old == nil {
			t.Old, _ = r.coll.Lookup().Get(t.Key)
		}
	}
	if err := apply(); err != nil {
		return err
	}
	for _, t := range c.Transitions {
		r.transitions = append(r.transitions, spell(t))
	}
	return nil
}

// spell returns a transition with the versions of its objects, "?" for a state that is not known.
func spell(t store.Transition) string {
	version := func(rv string) string { return strings.TrimPrefix(t.Key, "ns/") + "@" + rv }
	old := version("?")
	if t.Old != nil {
		old = version(t.Old.GetResourceVersion())
	}
	switch {
	case t.Type == store.Added:
		return "add " + version(t.RV)
	case t.Type == store.Modified:
		return "update " + old + " " + version(t.RV)
	case t.Object == nil:
		return "delete unknown " + old
	}
	return "delete " + version(t.RV)
}

func (r *recorder) take() []string {
	taken := r.transitions
	r.transitions = nil
	return taken
}

// harness is queue, loop, collection and two sinks.
type harness struct {
	queue *deltafifo.Queue
	coll  store.Collection
	rec   *recorder
	stats *pipeline.Stats
}

func start(t *testing.T, coll store.Collection) *harness {
	return startWith(t, coll, func(*pipeline.LoopOptions) {})
}

// startSlow is start with a loop that begins with each batch of events after a while, and is busy at first.
func startSlow(t *testing.T, coll store.Collection, takes time.Duration) *harness {
	p := startWith(t, coll, func(o *pipeline.LoopOptions) {
		o.Around = func(b deltafifo.Batch, apply func() error) error {
			if !b.List {
				time.Sleep(takes)
			}
			return apply()
		}
	})
	p.queue.Flush()
	synctest.Wait()
	return p
}

// startWith is start with other settings of the loop.
func startWith(t *testing.T, coll store.Collection, change func(*pipeline.LoopOptions)) *harness {
	q := deltafifo.New(deltafifo.Options{KnownObjects: pipeline.KnownObjects{Collection: coll}})
	q.Start(coll.State().RV)
	rec, stats := &recorder{coll: coll}, pipeline.NewStats(clock.RealClock{})
	opts := pipeline.LoopOptions{
		Queue: q, Collection: coll, Sinks: []pipeline.Sink{rec, stats}, StoreFailed: stats.StoreFailed,
	}
	change(&opts)
	done := make(chan error, 1)
	go func() { done <- pipeline.NewLoop(opts).Run(context.Background()) }()
	t.Cleanup(func() {
		q.Close()
		require.NoError(t, <-done)
	})
	return &harness{queue: q, coll: coll, rec: rec, stats: stats}
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

// rapidDir returns a directory for one run of a property.
func rapidDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "pipeline")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
