package memory_test

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// The benchmarks in this file do the same things to a collection and to
// client-go's Indexer, with the same objects (decoded ones for client-go, as
// its users have them) under the same indexes of labels, which both have parsed.
// Every change is one that a watch brings: a new object with a resourceVersion of its
// own, the highest so far. docs/library-reflector.md tells what comes out.

// beside is one of the two stores, with size objects.
type beside struct {
	size   int
	plain  bool // without an index of labels
	get    func(i int) bool
	make   func(from, n int) // n changes for put, in a walk that does not follow their order
	put    func(n int)       // the n-th that was made
	remove func(n int)       // the object of that name
	empty  func()            // begins anew with nothing
	index  func(app int) int
	list   func() int // all objects in a slice
	walk   func() int // one look at each object
}

// at is which of size objects is changed n-th.
func at(n, size int) int { return n * 7919 % size }

// labels of the i-th object; it is also in one of 50 namespaces.
func labels(i int) map[string]string {
	return map[string]string{"app": "app-" + strconv.Itoa(i%200), "team": "team-" + strconv.Itoa(i%1000)}
}

// version is the resourceVersion of the n-th change, and one less that of the
// deletion before it. At first there is 1.
func version(n int) int { return 2*n + 3 }

func configMap(i, rv int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-" + strconv.Itoa(i%50), Name: "name-" + strconv.Itoa(i), UID: types.UID("uid-" + strconv.Itoa(i)),
			ResourceVersion: strconv.Itoa(rv), Labels: labels(i),
		},
		Data: map[string]string{"payload": "payload-" + strconv.Itoa(i%1000)},
	}
}

func clientGo(labels ...string) func(b *testing.B, size int) beside {
	return func(b *testing.B, size int) beside { return theirs(b, size, labels) }
}

func theirs(b *testing.B, size int, indexed []string) beside {
	label := func(name string) cache.IndexFunc {
		return func(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Labels[name]}, nil }
	}
	var x cache.Indexer
	empty := func() {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		for _, name := range indexed {
			indexers[name] = label(name)
		}
		x = cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	}
	empty()
	var made []*corev1.ConfigMap
	var keys, apps []string
	for i := range size {
		o := configMap(i, 1)
		keys, apps = append(keys, o.Namespace+"/"+o.Name), append(apps, "app-"+strconv.Itoa(i%200))
		require.NoError(b, x.Add(o))
	}
	return beside{
		size:  size,
		plain: len(indexed) == 0,
		get:   func(i int) bool { _, ok, _ := x.GetByKey(keys[i]); return ok },
		make: func(from, n int) {
			made = made[:0]
			for i := from; i < from+n; i++ {
				made = append(made, configMap(at(i, size), version(i)))
			}
		},
		put:    func(n int) { _ = x.Update(made[n]) },
		remove: func(n int) { _ = x.Delete(made[n]) },
		empty:  empty,
		index:  func(app int) int { l, _ := x.ByIndex("app", apps[app]); return len(l) },
		list:   func() int { return len(x.List()) },
		walk: func() (n int) {
			for _, o := range x.List() {
				if o != nil {
					n++
				}
			}
			return n
		},
	}
}

func snapcache(opts []memory.Option, indexes ...store.Index) func(b *testing.B, size int) beside {
	return func(b *testing.B, size int) beside { return ours(b, size, opts, indexes) }
}

func ours(b *testing.B, size int, opts []memory.Option, indexes []store.Index) beside {
	var coll store.Collection
	fill := func(changes []store.Change) {
		db := memory.New(opts...) // nothing of it outlives the collection
		var err error
		coll, err = db.Open(storetest.Info("configmaps"), indexes...)
		require.NoError(b, err)
		r, err := coll.Replace()
		require.NoError(b, err)
		require.NoError(b, r.Apply(changes))
		require.NoError(b, r.Commit(storetest.Checkpoint(1)))
	}
	one := func(i, rv int) store.Change {
		return storetest.Put(storetest.Object("ns-"+strconv.Itoa(i%50), "name-"+strconv.Itoa(i), "uid-"+strconv.Itoa(i),
			strconv.Itoa(rv), labels(i), "payload-"+strconv.Itoa(i%1000)))
	}
	var changes []store.Change
	var keys, apps []string
	for i := range size {
		ch := one(i, 1)
		keys, apps = append(keys, ch.Key), append(apps, "app-"+strconv.Itoa(i%200))
		changes = append(changes, ch)
	}
	fill(changes)

	var puts, removals []store.Batch
	apply := func(batch store.Batch) {
		if err := coll.Apply(batch); err != nil {
			b.Error(err)
		}
	}
	read := func(f func(store.View)) {
		v, err := coll.View()
		if err != nil {
			b.Error(err)
			return
		}
		f(v)
		v.Close()
	}
	now := time.Now()
	return beside{
		size:  size,
		plain: len(indexes) == 0,
		get:   func(i int) bool { _, err := coll.(store.Getter).Get(keys[i]); return err == nil },
		make: func(from, n int) {
			puts, removals = puts[:0], removals[:0]
			for i := from; i < from+n; i++ {
				rv := version(i)
				cp := store.Checkpoint{RV: strconv.Itoa(rv), Cluster: "c", LastEvent: now, LastList: now, ListReason: "initial"}
				puts = append(puts, store.Batch{Changes: []store.Change{one(at(i, size), rv)}, Checkpoint: cp})
				cp.RV = strconv.Itoa(rv - 1)
				gone := store.Change{Key: keys[at(i, size)], RV: cp.RV}
				removals = append(removals, store.Batch{Changes: []store.Change{gone}, Checkpoint: cp})
			}
		},
		put:    func(n int) { apply(puts[n]) },
		remove: func(n int) { apply(removals[n]) },
		empty:  func() { fill(nil) },
		index: func(app int) (n int) {
			read(func(v store.View) {
				l := make([]any, 0, size/200)
				for key, err := range v.IndexKeys("app", apps[app], "") {
					if err != nil {
						b.Error(err)
					}
					o, err := v.Get(key)
					if err != nil {
						b.Error(err)
					}
					l = append(l, o)
				}
				n = len(l)
			})
			return n
		},
		list: func() (n int) {
			read(func(v store.View) {
				l := make([]*object.Object, 0, v.State().Count)
				for o, err := range v.Objects("", "") {
					if err != nil {
						b.Error(err)
					}
					l = append(l, o)
				}
				n = len(l)
			})
			return n
		},
		walk: func() (n int) {
			read(func(v store.View) {
				for o, err := range v.Objects("", "") {
					if o != nil && err == nil {
						n++
					}
				}
			})
			return n
		},
	}
}

// cpuTime is what the process has used of the processor: the clock tells more
// about who else is on the machine.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkBeside(b *testing.B) {
	for _, size := range []int{1_000, 20_000, 100_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchBeside(b, size) })
	}
}

func benchBeside(b *testing.B, size int) {
	app, team := store.LabelIndex("app", "app"), store.LabelIndex("team", "team")
	informers := []memory.Option{memory.WithoutHistory()}
	stores := []struct {
		name string
		open func(*testing.B, int) beside
	}{
		{"client-go", clientGo("app", "team")},
		{"snapcache", snapcache(informers, app, team)}, // as an informer has it
		{"snapcache-history", snapcache(nil, app, team)},
		// With the index that every informer has, by namespace, and no other.
		{"client-go-plain", clientGo()},
		{"snapcache-plain", snapcache(informers)},
		// As the second, with an index that has to look into the JSON.
		{"snapcache-field", snapcache(informers, app, store.FieldIndex("payload", "data.payload"))},
	}
	each := func(what string, run func(*testing.B, beside)) {
		for _, s := range stores {
			b.Run(what+"/"+s.name, func(b *testing.B) { run(b, s.open(b, size)) })
		}
	}
	// Changes come as a watch brings them, a few at a time, each made just before it is
	// stored. Making them is not in the time that is taken, nor is collecting the garbage
	// of it: that would be most of what is measured.
	const round, collect = 100, 10_000
	changing := func(b *testing.B, x beside, run func(n int)) {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		b.ReportAllocs()
		b.ResetTimer()
		var used time.Duration
		for done := 0; done < b.N; done += round {
			b.StopTimer()
			if done%collect == 0 {
				runtime.GC()
			}
			x.make(done, round)
			b.StartTimer()
			start := cpuTime(b)
			for n := range min(round, b.N-done) {
				run(n)
			}
			used += cpuTime(b) - start
		}
		b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
	}
	timed := func(what string, run func(b *testing.B, x beside, n int)) {
		each(what, func(b *testing.B, x beside) {
			b.ReportAllocs()
			b.ResetTimer()
			start := cpuTime(b)
			for n := range b.N {
				run(b, x, n)
			}
			b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N), "cpu-ns/op")
		})
	}
	timed("get", func(b *testing.B, x beside, n int) {
		if !x.get(at(n, size)) {
			b.Fatal("not there")
		}
	})
	each("update", func(b *testing.B, x beside) { changing(b, x, x.put) })
	each("delete-and-add", func(b *testing.B, x beside) {
		changing(b, x, func(n int) {
			x.remove(n)
			x.put(n)
		})
	})
	each("add", func(b *testing.B, x beside) { // to a store that grows from nothing to size
		done := 0
		changing(b, x, func(n int) {
			if done%size == 0 {
				x.empty()
			}
			done++
			x.put(n)
		})
	})
	timed("index", func(b *testing.B, x beside, n int) {
		if x.plain {
			b.Skip("there is none")
		}
		if x.index(n%200) != size/200 {
			b.Fatal("not all there")
		}
	})
	read := map[string]func(beside) int{
		"list": func(x beside) int { return x.list() },
		"walk": func(x beside) int { return x.walk() },
	}
	for _, what := range []string{"list", "walk"} {
		timed(what, func(b *testing.B, x beside, _ int) {
			if read[what](x) != size {
				b.Fatal("not all there")
			}
		})
		each(what+"-beside-20000-changes-a-second", func(b *testing.B, x beside) { besideWriter(b, x, 20_000, read[what]) })
		each(what+"-beside-all-it-takes", func(b *testing.B, x beside) { besideWriter(b, x, 0, read[what]) })
	}
}

// besideWriter reads again and again while as many changes are written, at a
// rate or as fast as they go. It tells by the clock how long a read takes and how long
// a change does: the median and what one in a hundred is above. On a machine with
// other work the means tell of that.
func besideWriter(b *testing.B, x beside, rate int, read func(beside) int) {
	x.make(0, x.size*b.N)
	b.ResetTimer()
	done, writes := make(chan struct{}), make([]time.Duration, 0, x.size*b.N)
	go func() {
		defer close(done)
		start := time.Now()
		for n := range x.size * b.N {
			for rate > 0 && time.Since(start) < time.Duration(n)*time.Second/time.Duration(rate) {
				time.Sleep(time.Millisecond)
			}
			before := time.Now()
			x.put(n)
			writes = append(writes, time.Since(before))
		}
	}()
	var reads []time.Duration
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
		}
		before := time.Now()
		if read(x) != x.size {
			b.Error("not all there")
		}
		reads = append(reads, time.Since(before))
	}
	for name, took := range map[string][]time.Duration{"read": reads, "write": writes} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2]), name+"-p50-ns")
		b.ReportMetric(float64(took[len(took)*99/100]), name+"-p99-ns")
	}
	b.ReportMetric(float64(len(writes))/b.Elapsed().Seconds(), "writes/s")
	b.ReportMetric(float64(len(reads))/b.Elapsed().Seconds(), "reads/s")
}
