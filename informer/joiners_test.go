package informer_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
)

const joinedPods = 10_000

// counter is a handler that counts the objects of its initial list.
type counter struct{ added atomic.Int64 }

func (c *counter) OnAdd(_ any, initial bool) {
	if initial {
		c.added.Add(1)
	}
}
func (c *counter) OnUpdate(any, any) {}
func (c *counter) OnDelete(any)      {}

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
		require.EqualValues(t, objects, counters[i].added.Load())
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
