package library

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// calls is a handler that records its calls in their order over all objects. It leaves out updates
// that change nothing, which a relist of client-go's informer causes.
type calls struct {
	mu      sync.Mutex
	initial []string // the calls of its initial list that came before all others
	rest    []string
}

func shown(o any) string {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return "unknown " + shown(gone.Obj)
	}
	m := o.(*corev1.ConfigMap)
	return fmt.Sprintf("%s@%s %s=%s", m.Name, m.ResourceVersion, m.UID, m.Data["value"])
}

func (c *calls) note(initial bool, call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if initial && len(c.rest) == 0 {
		c.initial = append(c.initial, call)
	} else {
		c.rest = append(c.rest, call)
	}
}

func (c *calls) OnAdd(o any, initial bool) {
	c.note(initial, fmt.Sprintf("add %s initial=%v", shown(o), initial))
}

func (c *calls) OnUpdate(old, o any) {
	if shown(old) != shown(o) {
		c.note(false, "update "+shown(old)+" to "+shown(o))
	}
}

func (c *calls) OnDelete(o any) { c.note(false, "delete "+shown(o)) }

// take returns the calls so far, and removes them.
func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := append(c.initial, c.rest...)
	c.initial, c.rest = nil, nil
	return taken
}

// shown returns the calls since the step before. The initial list is sorted: a handler that
// joins client-go's informer gets it from a map. So is what follows the deletions at the
// front if the step may have made a list: client-go's is put together in a map, too.
func (c *calls) shown(listed bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := slices.Clone(c.rest)
	if listed {
		front := slices.IndexFunc(rest, func(call string) bool { return !strings.HasPrefix(call, "delete unknown ") })
		slices.Sort(rest[max(front, 0):])
	}
	return strings.Join(append(slices.Sorted(slices.Values(c.initial)), rest...), "\n") + "\n"
}

// watched is one informer of the comparison, with its handlers.
type watched struct {
	cache.SharedIndexInformer
	handlers map[string]*calls
	regs     map[string]cache.ResourceEventHandlerRegistration
}

func (w *watched) content() string {
	var all []string
	for _, o := range w.GetStore().List() {
		all = append(all, shown(o))
	}
	slices.Sort(all)
	values := w.GetIndexer().ListIndexFuncValues("value")
	slices.Sort(values)
	for _, v := range values {
		keys, err := w.GetIndexer().IndexKeys("value", v)
		slices.Sort(keys)
		all = append(all, fmt.Sprintf("%s: %v %v", v, keys, err))
	}
	return strings.Join(all, "\n")
}

// step is the calls of the handlers since the step before, and what is in the cache.
func (w *watched) step(listed bool) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.handlers)) {
		fmt.Fprintf(&b, "%s, synced %v, %s", name, w.regs[name].HasSynced(), w.handlers[name].shown(listed))
	}
	return b.String() + w.content()
}

// liveParityPatience is longer than patience: client-go waits up to a minute between
// tries.
const liveParityPatience = 5 * time.Minute

// beside is client-go's informer and ours on one network and one server.
type beside struct {
	t        *testing.T
	c        kubernetes.Interface
	ns       string
	net      *proxy
	clientGo *watched
	ours     map[string]*watched
	marks    int
}

func byValue(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Data["value"]}, nil }

func newBeside(t *testing.T, ns string) *beside {
	b := &beside{t: t, c: clientset(t, ns), ns: ns, net: newProxy(t, "configmaps"), ours: map[string]*watched{}}
	lw := func() cache.ListerWatcher {
		client := harness.Clientset(t, b.net.config())
		return cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", ns, func(*metav1.ListOptions) {})
	}
	indexers := cache.Indexers{"value": byValue}
	protobuf, err := informer.NewProtobufCodec(&corev1.ConfigMap{}, scheme.Scheme)
	require.NoError(t, err)
	b.clientGo = newWatched(cache.NewSharedIndexInformer(lw(), &corev1.ConfigMap{}, 0, indexers))
	for _, tc := range []struct {
		name string
		opts []informer.Option
	}{
		{"in memory", nil}, {"on disk", []informer.Option{}}, {"on disk, as protobuf", []informer.Option{informer.WithCodec(protobuf)}},
	} {
		if tc.opts != nil {
			db := openStore(t, t.TempDir())
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			tc.opts = append(tc.opts, informer.WithStore(db, "configmaps"))
		}
		b.ours[tc.name] = newWatched(informer.NewSharedIndexInformer(lw(), &corev1.ConfigMap{}, 0, indexers, append(tc.opts, informer.WithScheme(scheme.Scheme))...))
	}
	return b
}

func newWatched(inf cache.SharedIndexInformer) *watched {
	return &watched{inf, map[string]*calls{}, map[string]cache.ResourceEventHandlerRegistration{}}
}

// each calls f with every informer.
func (b *beside) each(f func(*watched)) {
	f(b.clientGo)
	for _, name := range slices.Sorted(maps.Keys(b.ours)) {
		f(b.ours[name])
	}
}

func (b *beside) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	b.each(func(w *watched) { wg.Go(func() { w.RunWithContext(ctx) }) })
	b.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func (b *beside) add(handler string) {
	b.each(func(w *watched) {
		h := &calls{}
		reg, err := w.AddEventHandler(h)
		require.NoError(b.t, err)
		w.handlers[handler], w.regs[handler] = h, reg
	})
}

func (b *beside) drop(handler string) {
	b.each(func(w *watched) {
		require.NoError(b.t, cache.ShutDownEventHandler(w, w.regs[handler]))
	})
}

func (b *beside) put(name, value string) { put(b.t, b.c, b.ns, name, value, nil) }
func (b *beside) remove(name string)     { remove(b.t, b.c, b.ns, name) }

func (b *beside) recreate(name, value string) {
	b.remove(name)
	b.put(name, value)
}

// settle waits until every informer has what the server has and an open watch, and all
// handlers have had the same calls in the same order since the step before. So what happens
// next comes by watch, event by event, unless the test cuts that.
func (b *beside) settle(step string) {
	b.t.Helper()
	b.same(step, false)
}

// settleListed is settle after a step in which informers may have made a list. It returns
// what the handlers of client-go's informer were called with.
func (b *beside) settleListed(step string) string {
	b.t.Helper()
	return b.same(step, true)
}

func (b *beside) same(step string, listed bool) string {
	b.t.Helper()
	b.each(func(w *watched) { // what is an initial list ends before anything else happens
		for _, reg := range w.regs {
			require.True(b.t, cache.WaitForCacheSync(b.t.Context().Done(), reg.HasSynced))
		}
	})
	b.marks++
	b.put("mark", fmt.Sprint(b.marks))
	server := func() (all []string) {
		list, err := b.c.CoreV1().ConfigMaps(b.ns).List(b.t.Context(), metav1.ListOptions{})
		require.NoError(b.t, err)
		for _, m := range list.Items {
			all = append(all, shown(&m))
		}
		slices.Sort(all)
		return all
	}()
	var want string
	all := func() bool {
		want = b.clientGo.step(listed)
		same := b.net.watching() == 1+len(b.ours)
		b.each(func(w *watched) {
			same = same && strings.HasPrefix(w.content(), strings.Join(server, "\n")+"\n") && w.step(listed) == want
		})
		return same
	}
	if !assert.Eventually(b.t, all, liveParityPatience, pollEvery, step) {
		for name, w := range b.ours {
			require.Equal(b.t, want, w.step(listed), "%s: %s", step, name)
		}
		require.Contains(b.t, b.clientGo.content(), strings.Join(server, "\n"), step)
		require.Fail(b.t, "not the same, with all watches open, at any time: "+step)
	}
	b.each(func(w *watched) {
		for _, h := range w.handlers {
			h.take()
		}
	})
	return want
}

// TestLiveParity puts client-go's informer and ours through the same events on a real
// server: cut connections, refused ones, answers of 500, watches that end, bookmarks,
// a history that the server has forgotten, objects replaced by others of the same name,
// handlers that join and leave. All handlers get the same calls in the same order over all
// objects, and all caches hold the same.
//
// While an informer may be without a watch, also between watches that end, an object
// changes once and none is deleted, and the order is compared as far as a list has one.
// client-go's informer lists in cases where ours resumes: after most errors, and after a
// watch of less than a second without an event, as a watch that the server ends at its timeout
// may be on a slow machine. A list delivers two changes of an object as one. Only if the server
// has compacted the history, so that all informers have to list, this does not apply.
func TestLiveParity(t *testing.T) {
	b := newBeside(t, "live-parity")
	for _, name := range []string{"a", "b", "c", "d"} {
		b.put(name, "1")
	}
	b.add("first")
	b.start()
	b.settle("the first list")

	b.put("a", "2")
	b.put("a", "3")
	b.put("e", "1")
	b.remove("b")
	b.put("b", "2")
	b.recreate("c", "2")
	b.settle("add, update and delete")

	b.add("second")
	b.settle("a handler joins")
	b.put("a", "4")
	b.settle("two handlers")
	b.drop("first")
	b.put("a", "5")
	b.remove("e")
	b.settle("a handler has gone")

	b.net.down()
	b.put("a", "6")
	b.put("f", "1")
	b.net.up()
	b.settleListed("connections were cut")

	b.net.fail(true)
	b.net.down()
	b.net.up()
	b.put("a", "7")
	b.put("g", "1")
	require.Eventually(t, func() bool { return b.net.failures() >= 2*(1+len(b.ours)) }, patience, pollEvery)
	b.net.fail(false)
	b.settleListed("the server failed")

	b.net.endWatchesAfter("4")
	b.net.down()
	b.net.up()
	b.settleListed("watches will end")
	require.Eventually(t, func() bool { return b.net.seen() >= 2*(1+len(b.ours)) }, patience, pollEvery, "bookmarks")
	b.put("a", "8")
	b.put("c", "3")
	b.settleListed("watches have ended")
	b.net.endWatchesAfter("")

	release := b.net.hold() // not down: the backoff would be long by the end
	defer release()
	b.put("a", "9")
	b.recreate("c", "4")
	b.remove("d")
	b.put("h", "1")
	require.NoError(t, shared.CompactEtcd(t.Context()))
	require.NoError(t, shared.RestartAPIServer(t.Context()))
	release()
	require.Contains(t, b.settleListed("the server has forgotten"), "delete unknown d@")

	b.add("third")
	b.settle("a handler joins after the list")
	b.remove("a")
	b.recreate("c", "5")
	b.settle("all three were notified") // a handler that leaves earlier may miss a call
	b.drop("second")
	b.put("h", "2")
	b.settle("the end")
}
