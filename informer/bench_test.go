package informer_test

import (
	"math"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
)

// compared is client-go's indexer, or ours in memory, with an index by node. Both keep the very
// pods that they are given, so both are given the same.
type compared struct {
	cache.Indexer
	empty func() cache.Indexer
}

// fill replaces the indexer with an empty one, and adds the pods to it.
func (x *compared) fill(b *testing.B, pods []*corev1.Pod) {
	x.Indexer = x.empty()
	for _, p := range pods {
		if err := x.Add(p); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIndexer compares client-go's indexer with ours in memory, in turn, b.N rounds. It
// reports the least processor time that each took in a round, without that of the garbage
// collector, and what part of client-go's ours is; beside changes it is the median by the clock.
func BenchmarkIndexer(b *testing.B) {
	for _, size := range []int{1_000, 20_000, 100_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			indexers := cache.Indexers{"node": byNode}
			theirs := &compared{empty: func() cache.Indexer { return cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers) }}
			ours := &compared{empty: func() cache.Indexer { return informer.NewIndexer(&corev1.Pod{}, indexers) }}
			benchIndexers(b, theirs, ours, size)
		})
	}
}

func benchIndexers(b *testing.B, theirs, ours *compared, size int) {
	// Pods come in an order that is not that of their keys; each state of one is an object of
	// its own, as a watch brings it.
	var states [2][]*corev1.Pod
	keys := make([]string, size)
	for i := range size {
		n := i * 7919 % size // shares no factor with a size
		keys[i] = "ns/pod-" + strconv.Itoa(n)
		for rv := range states {
			states[rv] = append(states[rv], pod("ns", "pod-"+strconv.Itoa(n), "n"+strconv.Itoa(n%100), n+rv+1))
		}
	}
	theirs.fill(b, states[0])
	ours.fill(b, states[0])
	each := inTurn(b, theirs, ours)
	times := max(1, 200_000/size)
	each("add", size*times, func(x *compared) { // to an indexer that grows from nothing
		for range times {
			x.fill(b, states[0])
		}
	})
	each("update", size*times, func(x *compared) {
		for n := range times {
			for _, p := range states[(n+1)%2] {
				if err := x.Update(p); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	benchReads(b, each, keys)
	b.Run("list-beside-20000-changes-a-second", func(b *testing.B) {
		var lists [2][]time.Duration
		var changes [2]int
		for range b.N {
			for i, x := range []*compared{theirs, ours} {
				changes[i] += listBesideChanges(b, x, states[0], &lists[i])
			}
		}
		reportRatio(b, median(lists[0]), median(lists[1]), 1)
		b.ReportMetric(float64(changes[1])/float64(changes[0]), "changes-ratio")
	})
}

// inTurn returns a function that measures one kind of call on two indexers: a round of n calls on
// each, in turn.
func inTurn(b *testing.B, theirs, ours *compared) func(name string, n int, round func(x *compared)) {
	return func(name string, n int, round func(x *compared)) {
		b.Run(name, func(b *testing.B) {
			least := [2]time.Duration{math.MaxInt64, math.MaxInt64}
			for range b.N {
				for i, x := range []*compared{theirs, ours} {
					runtime.GC()
					percent := debug.SetGCPercent(-1)
					start := cpuTime(b)
					round(x)
					least[i] = min(least[i], cpuTime(b)-start)
					debug.SetGCPercent(percent)
				}
			}
			reportRatio(b, least[0], least[1], n)
		})
	}
}

// benchReads compares the reads of two indexers that have all keys.
func benchReads(b *testing.B, each func(name string, n int, round func(x *compared)), keys []string) {
	size := len(keys)
	times := max(1, 200_000/size)
	each("get", size*times, func(x *compared) {
		for range times {
			for _, key := range keys {
				if _, ok, err := x.GetByKey(key); !ok || err != nil {
					b.Fatal(key, ok, err)
				}
			}
		}
	})
	each("list", 10*times, func(x *compared) {
		for range 10 * times {
			if len(x.List()) != size {
				b.Fatal("not all")
			}
		}
	})
	each("by-index", 100*times, func(x *compared) {
		for i := range 100 * times {
			if list, err := x.ByIndex("node", "n"+strconv.Itoa(i%100)); len(list) != size/100 || err != nil {
				b.Fatal(len(list), err)
			}
		}
	})
}

// BenchmarkAllDecoded is BenchmarkIndexer for the reads of a durable store whose objects are all
// kept decoded, after a restart.
func BenchmarkAllDecoded(b *testing.B) {
	const size = 20_000
	indexers := cache.Indexers{"node": byNode}
	var pods []any
	var keys []string
	for i := range size {
		n := i * 7919 % size // as in benchIndexers
		pods = append(pods, pod("ns", "pod-"+strconv.Itoa(n), "n"+strconv.Itoa(n%100), n+1))
		keys = append(keys, "ns/pod-"+strconv.Itoa(n))
	}
	path := filepath.Join(b.TempDir(), "db")
	theirs, ours := &compared{}, &compared{}
	db := boltDB(b, path)
	theirs.Indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	ours.Indexer = informer.NewIndexer(&corev1.Pod{}, indexers, allDecoded(db, "pods")...)
	for _, x := range []*compared{theirs, ours} {
		if err := x.Replace(pods, "1"); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	db = boltDB(b, path)
	defer db.Close()
	reading := informer.NewIndexer(&corev1.Pod{}, indexers, allDecoded(db, "pods")...)
	if err := reading.Own(); err != nil {
		b.Fatal(err)
	}
	ours.Indexer = reading
	benchReads(b, inTurn(b, theirs, ours), keys)
}

// listBesideChanges lists again and again for a while beside a writer. It appends how long each
// list took, and returns how many changes were made.
func listBesideChanges(b *testing.B, x *compared, pods []*corev1.Pod, took *[]time.Duration) (changes int) {
	const perSecond, lasts = 20_000, 300 * time.Millisecond
	done := make(chan struct{})
	runtime.GC()
	start := time.Now()
	go func() {
		defer close(done)
		for time.Since(start) < lasts {
			if due := int(time.Since(start) * perSecond / time.Second); changes >= due {
				time.Sleep(100 * time.Microsecond)
				continue
			}
			if err := x.Update(pods[changes%len(pods)]); err != nil {
				b.Error(err)
			}
			changes++
		}
	}()
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
		}
		before := time.Now()
		if len(x.List()) != len(pods) {
			b.Error("not all")
		}
		*took = append(*took, time.Since(before))
	}
	return changes
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// reportRatio reports what each of n calls took, and what part of the first the second is.
func reportRatio(b *testing.B, theirs, ours time.Duration, n int) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(theirs.Nanoseconds())/float64(n), "client-go-ns")
	b.ReportMetric(float64(ours.Nanoseconds())/float64(n), "ours-ns")
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
}
