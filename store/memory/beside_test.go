package memory_test

import (
	"math"
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
	name   string
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

// at is which of size objects is changed n-th. Each pass through all of them has an order of
// its own: after one that is always the same, what was stored last time lies in the memory as
// it is met again, which no watch does for a store.
func at(n, size int) int {
	strides := [...]int{7919, 6007, 4001, 9283, 2711, 8101, 3529} // none shares a factor with a size
	return n % size * strides[n/size%len(strides)] % size
}

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
		name:  "client-go",
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
		name:  "snapcache",
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
		index:  func(app int) int { l, _ := coll.(store.Lister).ByIndex("app", apps[app]); return len(l) },
		list:   func() int { l, _ := coll.(store.Lister).List(); return len(l) },
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

// pair is client-go's store and ours, for the same work.
type pair struct{ theirs, ours beside }

func (p pair) other(x beside) beside {
	if x.name == p.ours.name {
		return p.theirs
	}
	return p.ours
}

// BenchmarkBeside measures both in turn, b.N times. It tells the least time of each and what
// part of client-go's ours is.
func BenchmarkBeside(b *testing.B) {
	app, team := store.LabelIndex("app", "app"), store.LabelIndex("team", "team")
	informers := []memory.Option{memory.WithoutHistory()}
	for _, s := range []struct {
		name         string
		theirs, ours func(*testing.B, int) beside
	}{
		{"labels", clientGo("app", "team"), snapcache(informers, app, team)}, // as an informer has it
		{"history", clientGo("app", "team"), snapcache(nil, app, team)},
		// With the index that every informer has, by namespace, and no other.
		{"plain", clientGo(), snapcache(informers)},
		// With an index that has to look into the JSON.
		{"field", clientGo("app", "team"), snapcache(informers, app, store.FieldIndex("payload", "data.payload"))},
	} {
		for _, size := range []int{1_000, 20_000, 100_000} {
			b.Run(s.name+"/"+strconv.Itoa(size), func(b *testing.B) {
				benchBeside(b, pair{s.theirs(b, size), s.ours(b, size)}, size)
			})
		}
	}
}

func benchBeside(b *testing.B, p pair, size int) {
	// timed is the time of n calls of run, that of each.
	timed := func(b *testing.B, n int, run func(int)) time.Duration {
		start := cpuTime(b)
		for i := range n {
			run(i)
		}
		return (cpuTime(b) - start) / time.Duration(n)
	}
	// changing is timed for n changes. They come as a watch brings them, a few at a time,
	// each made just before it is stored. Making them is not in the time that is taken, nor is
	// collecting the garbage of it: that would be most of what is measured.
	const few = 100
	// Those of the other store are made too, so that what is in the processor's caches has
	// been swept out by as much.
	turn, changes := 0, max(size, 20_000)
	changing := func(b *testing.B, x beside, n int, runs ...func(int)) (used time.Duration) {
		runtime.GC()
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		for done := turn * changes; done < turn*changes+n; done += few {
			p.other(x).make(done, few)
			x.make(done, few)
			for _, run := range runs {
				used += timed(b, few, run)
			}
		}
		return used / time.Duration(n/few)
	}
	each := func(name string, round func(b *testing.B, x beside) time.Duration) {
		b.Run(name, func(b *testing.B) {
			theirs, ours := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
			for range b.N {
				theirs, ours = min(theirs, round(b, p.theirs)), min(ours, round(b, p.ours))
				turn++
			}
			report(b, "cpu-ns", theirs, ours)
		})
	}
	// Reads in short rounds, of which some have the processor for themselves; changes in long
	// ones, so that each has its part of what is put off.
	lists := max(1, 100_000/size)
	each("get", func(b *testing.B, x beside) time.Duration {
		return timed(b, 10_000, func(n int) {
			if !x.get(at(n, size)) {
				b.Fatal("not there")
			}
		})
	})
	each("update", func(b *testing.B, x beside) time.Duration { return changing(b, x, changes, x.put) })
	each("delete-and-add", func(b *testing.B, x beside) time.Duration {
		return changing(b, x, changes, x.remove, x.put)
	})
	each("add", func(b *testing.B, x beside) time.Duration { // to a store that grows from nothing to size
		done := 0
		return changing(b, x, changes, func(n int) {
			if done%size == 0 {
				x.empty()
			}
			done++
			x.put(n)
		})
	})
	// When all was added and nobody has looked yet.
	first := func(b *testing.B, x beside) {
		x.empty()
		changing(b, x, size, x.put)
		runtime.GC()
	}
	each("first-list", func(b *testing.B, x beside) time.Duration {
		first(b, x)
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		return timed(b, 1, func(int) { x.list() })
	})
	if !p.ours.plain {
		each("first-index", func(b *testing.B, x beside) time.Duration {
			first(b, x)
			x.list()
			return timed(b, 200, func(n int) { x.index(n) })
		})
		each("index", func(b *testing.B, x beside) time.Duration {
			return timed(b, 200, func(n int) {
				if x.index(n%200) != size/200 {
					b.Fatal("not all there")
				}
			})
		})
	}
	for name, read := range map[string]func(beside) int{"list": list, "walk": walk} {
		each(name, func(b *testing.B, x beside) time.Duration {
			return timed(b, lists, func(int) {
				if read(x) != size {
					b.Fatal("not all there")
				}
			})
		})
		b.Run(name+"-beside-20000-changes-a-second", func(b *testing.B) { besideWriter(b, p, 20_000, read) })
		b.Run(name+"-beside-all-it-takes", func(b *testing.B) { besideWriter(b, p, 0, read) })
	}
}

func list(x beside) int { return x.list() }
func walk(x beside) int { return x.walk() }

// report tells two times, and what part of the first the second is.
func report(b *testing.B, unit string, theirs, ours time.Duration) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(theirs), "client-go-"+unit)
	b.ReportMetric(float64(ours), "snapcache-"+unit)
	b.ReportMetric(float64(ours)/float64(theirs), unit+"-ratio")
}

// besideWriter reads again and again while changes are written, at a rate or as fast as
// they go, from one store and the other in turn. It tells by the clock how long a read
// takes, the median, and how many changes are made meanwhile; of those, what one in a
// hundred is above.
func besideWriter(b *testing.B, p pair, rate int, read func(beside) int) {
	var theirs, ours besides
	for range b.N {
		theirs.run(b, p.theirs, rate, read)
		ours.run(b, p.ours, rate, read)
	}
	report(b, "read-ns", quantile(theirs.reads, 50), quantile(ours.reads, 50))
	report(b, "write-p99-ns", quantile(theirs.writes, 99), quantile(ours.writes, 99))
	report(b, "between-writes-ns", theirs.took/time.Duration(len(theirs.writes)), ours.took/time.Duration(len(ours.writes)))
	report(b, "between-reads-ns", theirs.took/time.Duration(len(theirs.reads)), ours.took/time.Duration(len(ours.reads)))
}

// besides are the times of what went on beside each other.
type besides struct {
	reads, writes []time.Duration
	took          time.Duration
}

func (r *besides) run(b *testing.B, x beside, rate int, read func(beside) int) {
	const most, changes = 300 * time.Millisecond, 20_000
	x.make(0, changes)
	runtime.GC()
	done := make(chan struct{})
	start := time.Now()
	go func() {
		defer close(done)
		for n := range changes {
			for rate > 0 && time.Since(start) < time.Duration(n)*time.Second/time.Duration(rate) {
				time.Sleep(time.Millisecond)
			}
			before := time.Now()
			if before.Sub(start) > most {
				return
			}
			x.put(n)
			r.writes = append(r.writes, time.Since(before))
		}
	}()
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
		r.reads = append(r.reads, time.Since(before))
	}
	r.took += time.Since(start)
}

func quantile(times []time.Duration, percent int) time.Duration {
	slices.Sort(times)
	return times[len(times)*percent/100]
}
