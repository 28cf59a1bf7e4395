package informer_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// joinedPods is how many objects handlers that join get: far more than are decoded together.
const joinedPods = 10_000

// counter is a handler that counts the objects of its initial list, and other calls.
type counter struct{ added, others atomic.Int64 }

func (c *counter) OnAdd(_ any, initial bool) {
	if initial {
		c.added.Add(1)
	} else {
		c.others.Add(1)
	}
}
func (c *counter) OnUpdate(any, any) { c.others.Add(1) }
func (c *counter) OnDelete(any)      { c.others.Add(1) }

// join adds handlers to a synced informer, waits until each has its initial list and
// removes them. It returns the process's CPU time and the wall clock time.
func join(t testing.TB, inf cache.SharedIndexInformer, handlers, objects int) (cpu, wall time.Duration) {
	runtime.GC()
	began, before := time.Now(), cpuTime(t)
	counters := make([]counter, handlers)
	regs := make([]cache.ResourceEventHandlerRegistration, handlers)
	for i := range counters {
		var err error
		regs[i], err = inf.AddEventHandler(&counters[i])
		require.NoError(t, err)
	}
	for _, reg := range regs {
		<-reg.HasSyncedChecker().Done()
	}
	wall, cpu = time.Since(began), cpuTime(t)-before
	for i := range counters {
		require.EqualValues(t, objects, counters[i].added.Load(),
			"%T: handler %d of %d, which had %d other calls; with all objects in the cache: %t",
			inf, i, handlers, counters[i].others.Load(), len(inf.GetStore().ListKeys()) == objects)
		require.NoError(t, cache.ShutDownEventHandler(inf, regs[i]))
	}
	return cpu, wall
}

// cpuTime is the time that the process has spent on processors so far.
func cpuTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// synced returns a synced informer of client-go and two of ours, in memory and durable, with
// as many pods.
func synced(t testing.TB, objects int) map[string]cache.SharedIndexInformer {
	s := newServer()
	for i := range objects {
		s.put("pod-" + strconv.Itoa(i))
	}
	db := boltDB(t, filepath.Join(t.TempDir(), "db"))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	all := map[string]cache.SharedIndexInformer{
		"client-go": cache.NewSharedIndexInformer(s, pod("", "", "", 0), 0, cache.Indexers{"node": byNode}),
		"memory":    newInformer(s),
		"durable":   newInformer(s, informer.WithStore(db, "pods")),
	}
	for _, inf := range all {
		run(t, inf)
		<-inf.HasSyncedChecker().Done()
	}
	return all
}

// BenchmarkJoiners compares what it costs to serve handlers that join a full cache.
func BenchmarkJoiners(b *testing.B) {
	all := synced(b, joinedPods)
	for _, handlers := range []int{1, 40, 120} {
		for _, name := range []string{"client-go", "memory", "durable"} {
			b.Run(fmt.Sprintf("%d/%s", handlers, name), func(b *testing.B) {
				var cpus []time.Duration
				for b.Loop() {
					cpu, _ := join(b, all[name], handlers, joinedPods)
					cpus = append(cpus, cpu)
				}
				slices.Sort(cpus)
				b.ReportMetric(float64(cpus[len(cpus)/2].Microseconds())/1000, "cpu-ms/op")
			})
		}
	}
}

// TestJoinersCost: what it costs to serve 40 handlers that join a full cache on the durable
// store is at most twice what client-go's informer takes for it. It measures the CPU time
// of the process, which other processes don't add to.
func TestJoinersCost(t *testing.T) {
	objects := joinedPods
	if testing.Short() {
		objects /= 5
	}
	all := synced(t, objects)
	times := map[string][]time.Duration{}
	for range 5 {
		for name, inf := range all {
			cpu, _ := join(t, inf, 40, objects)
			times[name] = append(times[name], cpu)
		}
	}
	median := func(name string) time.Duration {
		slices.Sort(times[name])
		return times[name][len(times[name])/2]
	}
	for _, name := range []string{"memory", "durable"} {
		require.LessOrEqual(t, median(name), 2*median("client-go"), "%s: %v", name, times)
	}
}

// joiner is a gated handler and the calls that it must get.
type joiner struct {
	gate
	reg     *informer.Registration
	want    []string
	got     []string
	initial int // calls of its initial list
	whole   int // calls up to the end of the newest listing of all objects
	left    bool
}

// let lets the handler make as many calls, or fewer if it has no more.
func (j *joiner) let(calls int) {
	for range calls {
		select {
		case j.leave <- struct{}{}:
		default:
		}
		synctest.Wait()
	}
	j.got = append(j.got, j.take()...)
}

// wrong describes a wrong call of the handler, which is blocked in its next call; empty for none.
func (j *joiner) wrong() string {
	for i, call := range j.got {
		if i >= len(j.want) || j.want[i] != call {
			return fmt.Sprintf("call %d is %s, want %s", i, call, j.want[i:min(len(j.want), i+1)])
		}
	}
	if synced := len(j.got) >= j.initial; !j.left && synced != j.reg.HasSynced() {
		return fmt.Sprintf("after %d of %d calls of its initial list HasSynced is %v", len(j.got), j.initial, !synced)
	}
	return ""
}

// Handlers that join and leave at any time, each at its own pace, are called with the state
// at which they joined, then with each change once and in order, and with resyncs unless
// they are still getting all objects. There are more objects than are read ahead, in chunks of 64, so
// that most are read long after a handler has joined and perhaps after they have changed.
func TestJoinersAndLeavers(t *testing.T) {
	// The last one is new to the collection, the others are of all of its chunks.
	names := []string{"o000", "o063", "o064", "o600", "o639", "o640", "o766", "o767", "p"}
	for _, c := range collections {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				story := actions(names, 25).Draw(rt, "story")
				var wrong string
				synctest.Test(t, func(t *testing.T) { wrong = joinersAndLeavers(t, c.open(t), story) })
				require.Empty(rt, wrong)
			})
		})
	}
}

func joinersAndLeavers(t *testing.T, coll store.Collection, story []action) (wrong string) {
	h := &history{rv: 1000, objects: map[string]int{}}
	var stored []store.Change
	for n := range 768 {
		name := fmt.Sprintf("o%03d", n)
		h.objects[name] = n + 1
		stored = append(stored, storetest.Put(obj(name, "u", n+1)))
	}
	fill(t, coll, stored...)
	var failed atomic.Pointer[error]
	p := startWith(t, coll, informer.ProcessorOptions{Resync: time.Second, OnError: func(err error) { failed.Store(&err) }})
	var joiners []*joiner
	expect := func(calls ...string) {
		for _, j := range joiners {
			j.want = append(j.want, calls...)
		}
	}
	for n, a := range story {
		switch a.op {
		case 0:
			expect(h.relist(t, p, a.missed, false)...)
		case 1, 2:
			j := &joiner{gate: gate{leave: make(chan struct{})}}
			for _, name := range slices.Sorted(maps.Keys(h.objects)) {
				j.want = append(j.want, fmt.Sprintf("add %s@%d true", name, h.objects[name]))
			}
			j.initial, j.whole = len(j.want), len(j.want)
			var err error
			j.reg, err = p.proc.AddHandler(j, cache.HandlerOptions{})
			require.NoError(t, err)
			joiners = append(joiners, j)
		case 3:
			if len(joiners) > 0 {
				j := joiners[a.number%len(joiners)]
				p.proc.RemoveHandler(j.reg)
				j.left = true
				j.want = j.want[:min(len(j.want), len(j.got)+1)] // the call that goes on ends
			}
		case 4:
			time.Sleep(time.Second)
			require.NoError(t, p.proc.Resync())
			for _, j := range joiners {
				if len(j.got) < j.whole {
					continue
				}
				for _, name := range slices.Sorted(maps.Keys(h.objects)) {
					j.want = append(j.want, fmt.Sprintf("update %s@%d %s@%d", name, h.objects[name], name, h.objects[name]))
				}
				j.whole = len(j.want)
			}
		case 5, 6:
			for i, j := range joiners {
				j.let([]int{1, 100, 150, 1000}[(a.number+i)%4])
			}
		default:
			expect(h.event(t, p, a.change)...)
		}
		synctest.Wait()
		for i, j := range joiners {
			if j.left {
				j.want = j.want[:min(len(j.want), len(j.got)+1)]
			}
			if wrong == "" && j.wrong() != "" {
				wrong = fmt.Sprintf("handler %d after step %d: %s", i, n, j.wrong())
			}
		}
	}
	for i, j := range joiners {
		close(j.leave)
		synctest.Wait()
		j.got = append(j.got, j.take()...)
		if wrong == "" && (j.wrong() != "" || !j.left && len(j.got) < len(j.want)) {
			wrong = fmt.Sprintf("handler %d at the end, after %d of %d calls: %s", i, len(j.got), len(j.want), j.wrong())
		}
	}
	if err := failed.Load(); wrong == "" && err != nil {
		wrong = "an error: " + (*err).Error()
	}
	return wrong
}

// decoded makes distinct objects, and counts them.
type decoded struct {
	mu   sync.Mutex
	made []weak.Pointer[distinct]
}

type distinct struct{ name string }

func (d *decoded) decoding(bool) informer.Decode {
	return func(o *object.Object) (any, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		x := &distinct{o.GetName()}
		d.made = append(d.made, weak.Make(x))
		return x, nil
	}
}

// alive returns how many of the objects that were made are still in use.
func (d *decoded) alive() (n int) {
	runtime.GC()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.made {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// keeper is a gated handler that keeps the objects that it gets.
type keeper struct {
	leave   chan struct{}
	objects []any
}

func (k *keeper) OnAdd(o any, _ bool) { <-k.leave; k.objects = append(k.objects, o) }
func (k *keeper) OnUpdate(_, _ any)   {}
func (k *keeper) OnDelete(any)        {}

// let lets the handler make as many calls.
func (k *keeper) let(calls int) {
	for range calls {
		k.leave <- struct{}{}
	}
	synctest.Wait()
}

// Handlers that join at one state and are near each other get the same objects, each of which is
// decoded once. A handler that stays behind holds keys, and a bounded number of objects; one alone holds fewer.
func TestJoinersShareObjects(t *testing.T) {
	const objects, chunk, recent, ahead = 4000, 64, 16, 3
	for _, c := range collections {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coll := c.open(t)
				var changes []store.Change
				for n := range objects {
					changes = append(changes, storetest.Put(obj(fmt.Sprintf("o%04d", n), "u", n+1)))
				}
				fill(t, coll, changes...)
				d := &decoded{}
				proc := informer.NewProcessor(informer.ProcessorOptions{Collection: coll, Decoding: d.decoding})
				require.NoError(t, proc.Start())
				var near []*keeper
				for range 10 {
					k := &keeper{leave: make(chan struct{})}
					_, err := proc.AddHandler(k, cache.HandlerOptions{})
					require.NoError(t, err)
					near = append(near, k)
				}
				for range objects / 500 {
					for _, k := range near[1:] {
						k.let(500)
					}
				}
				for _, k := range near[1:] {
					require.Len(t, k.objects, objects)
					for i, o := range k.objects {
						require.Same(t, near[1].objects[i], o)
					}
				}
				require.Len(t, d.made, objects)
				for _, k := range near {
					k.objects = nil
				}
				require.LessOrEqual(t, d.alive(), (recent+1+ahead)*chunk, "a handler that stays behind")
				near[0].let(objects)
				require.Len(t, near[0].objects, objects)
				near[0].objects = nil
				require.Zero(t, d.alive(), "all have their initial list")

				alone := &keeper{leave: make(chan struct{})}
				_, err := proc.AddHandler(alone, cache.HandlerOptions{})
				require.NoError(t, err)
				for range objects / chunk {
					alone.let(chunk)
					alone.objects = nil
					require.LessOrEqual(t, d.alive(), (1+ahead)*chunk, "a handler that shares with no other")
				}
				alone.let(objects % chunk)
				proc.Stop()
			})
		})
	}
}

// A handler that joins gets the decoded objects that are in the cache. It adds none: all objects would replace
// the few that are read again.
func TestJoinersGetCachedObjects(t *testing.T) {
	for _, o := range ours {
		t.Run(o.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.put("a")
				s.put("b")
				inf := o.make(t, s)
				r := run(t, inf)
				synctest.Wait()
				want, _, err := inf.GetStore().GetByKey("ns/b")
				require.NoError(t, err)
				var got []any
				_, err = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { got = append(got, o) }})
				require.NoError(t, err)
				synctest.Wait()
				require.Same(t, want, got[1])
				a, _, err := inf.GetStore().GetByKey("ns/a")
				require.NoError(t, err)
				require.Equal(t, a, got[0])
				if o.name == "memory" || o.name == "bolt, all decoded" {
					require.Same(t, a, got[0])
				} else {
					require.NotSame(t, a, got[0])
				}
				r.stop()
			})
		})
	}
}

// A correction moves no resourceVersion of the collection. A handler that joins after it gets
// the corrected object all the same, and one that joined before it the object as it was.
func TestJoinerAfterCorrection(t *testing.T) {
	for _, c := range collections {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coll := c.open(t)
				fill(t, coll, storetest.Put(obj("a", "u", 1)), storetest.Put(obj("b", "u", 3)))
				p := start(t, coll)
				require.NoError(t, p.queue.Update(obj("b", "u", 12)))
				require.NoError(t, p.queue.Update(obj("a", "u", 13)))
				synctest.Wait()
				state := coll.State()
				before, after := &gate{leave: make(chan struct{})}, &recorder{}
				_, err := p.proc.AddHandler(before, cache.HandlerOptions{})
				require.NoError(t, err)
				require.NoError(t, p.queue.Correct("ns/b", obj("b", "u", 11), "13"))
				synctest.Wait()
				require.Equal(t, state, coll.State())
				_, err = p.proc.AddHandler(after, cache.HandlerOptions{})
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, []string{"add a@13 true", "add b@11 true"}, after.take())
				close(before.leave)
				synctest.Wait()
				require.Equal(t, []string{"add a@13 true", "add b@12 true", "update b@12 b@11"}, before.take())
			})
		})
	}
}
