package kubeapi_test

import (
	"bytes"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// applied reports each batch that is in the store.
type applied chan struct{}

func (applied) Wanted(bool) bool { return false }

func (a applied) Commit(_ store.Changeset, apply func() error) error {
	defer func() { a <- struct{}{} }()
	return apply()
}
func (a applied) StoreFailed(error) {}

// BenchmarkChange measures a change of a pod from the queue to the file, without the Kubernetes API
// with it but without a client, and with attributes, as after the first watch with a selector. A round changes each of 4,000 pods once, and 100 are written at
// a time.
func BenchmarkChange(b *testing.B) {
	const pods = 4000
	listed := make([]store.Change, pods)
	for i := range listed {
		listed[i] = storetest.Put(benchPod(b, i, 1))
	}
	slices.SortFunc(listed, func(x, y store.Change) int { return compare(x.Key, y.Key) })
	for _, bb := range []struct {
		name            string
		api, attributes bool
	}{{"api=off", false, false}, {"api=on", true, false}, {"api=on/attributes", true, true}} {
		b.Run(bb.name, func(b *testing.B) {
			db, err := bolt.Open(filepath.Join(b.TempDir(), "cache.db"), bolt.Options{})
			require.NoError(b, err)
			defer func() { require.NoError(b, db.Close()) }()
			info := store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true, Transform: object.NewPrune(object.ManagedFields).ID()}
			rv, now := 3_000_000, clocktesting.NewFakePassiveClock(time.Now())
			events := kubeapi.NewEvents(strconv.Itoa(rv), now)
			var indexes []store.Index
			if bb.api {
				x := kubeapi.AttributesIndex(info, store.Description{}, events)
				if bb.attributes {
					x.Wanted = nil
				}
				indexes = append(indexes, x)
			}
			coll, err := db.Open(info, indexes...)
			require.NoError(b, err)
			r, err := coll.Replace()
			require.NoError(b, err)
			for page := range slices.Chunk(listed, 500) {
				require.NoError(b, r.Apply(page))
			}
			require.NoError(b, r.Commit(store.Checkpoint{RV: strconv.Itoa(rv), Cluster: "bench", LastList: time.Now()}))

			now.SetTime(now.Now().Add(time.Hour)) // after a start, clients from before may come back

			queue := deltafifo.New(deltafifo.Options{})
			queue.Start(strconv.Itoa(rv))
			observer := make(applied)
			loop := pipeline.NewLoop(pipeline.LoopOptions{
				Queue: queue, Collection: coll, Sinks: []pipeline.Sink{events, observer},
			})
			done := make(chan error, 1)
			go func() { done <- loop.Run(b.Context()) }()
			<-observer // the loop has begun
			b.ReportAllocs()
			var cpu time.Duration
			for b.Loop() {
				b.StopTimer()
				changes := make([]*object.Object, pods)
				for i, l := range listed {
					rv++
					from := `"resourceVersion":"` + l.Object.GetResourceVersion() + `"`
					raw := bytes.Replace(l.Object.Raw(), []byte(from), []byte(`"resourceVersion":"`+strconv.Itoa(rv)+`"`), 1)
					changes[i], err = object.FromValid(raw)
					require.NoError(b, err)
				}
				runtime.GC()
				b.StartTimer()
				before := cpuTime(b)
				for i, o := range changes {
					require.NoError(b, queue.Update(o))
					<-observer
					if changes[i] = nil; i%100 == 99 {
						require.NoError(b, db.Flush())
					}
				}
				cpu += cpuTime(b) - before
			}
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N*pods), "cpu-ns/change")
			b.ReportMetric(0, "ns/op")
			queue.Close()
			require.NoError(b, <-done)
		})
	}
}

// cpuTime is the time that the process has spent on processors so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
