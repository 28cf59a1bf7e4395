package informer_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// A handler gets the state before a list with each change, however late it is: also if it was still getting its
// initial list, and if the objects have changed again.
func TestStatesBeforeList(t *testing.T) {
	for _, c := range collections {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coll := c.open(t)
				fill(t, coll, storetest.Put(obj("a", "u", 1)), storetest.Put(obj("b", "u", 2)), storetest.Put(obj("bb", "u", 3)))
				p := start(t, coll)
				late := &gate{leave: make(chan struct{})}
				_, err := p.proc.AddHandler(late, cache.HandlerOptions{})
				require.NoError(t, err)
				synctest.Wait()
				p.rec.take()
				p.list(t, store.ReasonExpired, "30", obj("a", "u", 21), obj("bb", "u", 3), obj("c", "u", 22))
				synctest.Wait()
				require.NoError(t, p.queue.Update(obj("a", "u", 31)))
				p.list(t, store.ReasonExpired, "50", obj("a", "u", 41), obj("bb", "u", 42))
				synctest.Wait()
				changes := []string{
					"delete unknown b@2", "update a@1 a@21", "add c@22 false", "update a@21 a@31",
					"delete unknown c@22", "update a@31 a@41", "update bb@3 bb@42",
				}
				require.Equal(t, changes, p.rec.take())
				close(late.leave)
				synctest.Wait()
				require.Equal(t, append([]string{"add a@1 true", "add b@2 true", "add bb@3 true"}, changes...), late.take())
			})
		})
	}
}

// holder is a handler that waits in its first call, and then counts the updates whose old state is the one
// that it got before.
type holder struct {
	wait, leave chan struct{}
	once        sync.Once
	released    sync.Once
	mu          sync.Mutex
	known       map[string]string
	right       int
	failed      []string
}

func (h *holder) OnAdd(o any, _ bool) { h.note(o) }

func (h *holder) OnUpdate(old, o any) {
	h.once.Do(func() { close(h.wait); <-h.leave })
	h.mu.Lock()
	defer h.mu.Unlock()
	was := old.(*object.Object)
	if h.known[was.Key()] != was.GetResourceVersion() {
		h.failed = append(h.failed, rv(old))
	}
	h.known[was.Key()] = o.(*object.Object).GetResourceVersion()
	h.right++
}

func (h *holder) OnDelete(any) {}

func (h *holder) release() { h.released.Do(func() { close(h.leave) }) }

func (h *holder) note(o any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known[o.(*object.Object).Key()] = o.(*object.Object).GetResourceVersion()
}

// newHolder returns a holder that waits until it is released, at the latest at the end of the test.
func newHolder(t *testing.T) *holder {
	h := &holder{wait: make(chan struct{}), leave: make(chan struct{}), known: map[string]string{}}
	t.Cleanup(h.release)
	return h
}

// requireRight releases the holder, and waits for n updates whose old states are right.
func (h *holder) requireRight(t *testing.T, n int) {
	t.Helper()
	h.release()
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.right == n
	}, time.Minute, time.Millisecond)
	require.Empty(t, h.failed)
}

// Of tests of memory: how many objects there are, and the bytes of each.
const (
	manyObjects = 12_000
	manyBytes   = 4_000
)

// many is object n in a version that is its resourceVersion for n = 0.
func many(n, version int) *object.Object {
	return storetest.Object("ns", fmt.Sprintf("o%05d", n), "u", fmt.Sprint(version+n), nil,
		strings.Repeat(fmt.Sprintf("%d %d ", version, n), manyBytes/12))
}

// allOf returns all objects in a version.
func allOf(version int) (all []*object.Object) {
	for n := range manyObjects {
		all = append(all, many(n, version))
	}
	return all
}

// startWithMany starts a processor on a durable collection that has listed all objects in version 1.
func startWithMany(t *testing.T) *harness {
	t.Helper()
	dir := t.TempDir()
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), bolt.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	coll, err := db.Open(storetest.Info("test"))
	require.NoError(t, err)
	p := startWith(t, coll, informer.ProcessorOptions{SpoolDir: dir})
	p.list(t, store.ReasonInitial, "50000", allOf(1)...)
	p.rec.drop(t, manyObjects)
	return p
}

// requireGrown requires that the heap has grown since before by less than most bytes for each object.
func requireGrown(t *testing.T, before, most int64) {
	t.Helper()
	grown := (liveHeap() - before) / manyObjects
	t.Logf("%d bytes for each object that has changed", grown)
	require.Less(t, grown, most, "the objects have %d bytes each", manyBytes)
}

// The states before a list that changes all objects are not in memory while a handler is slow.
func TestRelistOfAllInBoundedMemory(t *testing.T) {
	p := startWithMany(t)
	h := newHolder(t)
	reg, err := p.proc.AddHandler(h, cache.HandlerOptions{})
	require.NoError(t, err)
	require.Eventually(t, reg.HasSynced, time.Minute, time.Millisecond)
	before := liveHeap()
	p.list(t, store.ReasonExpired, "150000", allOf(100_000)...)
	<-h.wait
	// While both handlers read the list, each has chunks of its own in memory.
	p.rec.drop(t, manyObjects)
	requireGrown(t, before, 1500)
	h.requireRight(t, manyObjects)
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools held
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below the limit
}
