package memory_test

import (
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// The benchmarks in this file do the same things to a collection and to
// client-go's Indexer, with the same objects (decoded ones for client-go, as
// its users have them) under the same two indexes. docs/library-reflector.md
// tells what comes out.

// beside is one of the two stores.
type beside struct {
	get    func(i int) bool
	put    func(i int) // one object, that of round 1
	renew  func(i int) // one object, that of round 2
	index  func(app int) int
	list   func() int
	remove func(i int)
}

func configMap(i, rv int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-" + strconv.Itoa(i%50), Name: "name-" + strconv.Itoa(i), UID: types.UID("uid-" + strconv.Itoa(i)),
			ResourceVersion: strconv.Itoa(rv), Labels: map[string]string{"app": "app-" + strconv.Itoa(i%200)},
		},
		Data: map[string]string{"payload": "payload-" + strconv.Itoa(i%1000)},
	}
}

func clientGo(b *testing.B) beside {
	x := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		"app":                func(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Labels["app"]}, nil },
		"payload":            func(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Data["payload"]}, nil },
	})
	var first, second []*corev1.ConfigMap
	var keys, apps []string
	for i := range benchObjects {
		first, second = append(first, configMap(i, 1)), append(second, configMap(i, 2))
		keys, apps = append(keys, first[i].Namespace+"/"+first[i].Name), append(apps, "app-"+strconv.Itoa(i%200))
		require.NoError(b, x.Add(first[i]))
	}
	return beside{
		get:    func(i int) bool { _, ok, _ := x.GetByKey(keys[i]); return ok },
		put:    func(i int) { _ = x.Add(first[i]) },
		renew:  func(i int) { _ = x.Update(second[i]) },
		index:  func(app int) int { l, _ := x.ByIndex("app", apps[app]); return len(l) },
		list:   func() int { return len(x.List()) },
		remove: func(i int) { _ = x.Delete(first[i]) },
	}
}

func snapcache(b *testing.B) beside {
	coll, keys := benchCollection(b)
	var first, second, gone []store.Change
	var apps []string
	for i := range benchObjects {
		first, second = append(first, storetest.Put(benchObject(i, 1))), append(second, storetest.Put(benchObject(i, 2)))
		gone, apps = append(gone, store.Change{Key: keys[i]}), append(apps, "app-"+strconv.Itoa(i%200))
	}
	cp := storetest.Checkpoint(2)
	apply := func(changes []store.Change) {
		if err := coll.Apply(store.Batch{Changes: changes, Checkpoint: cp}); err != nil {
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
	return beside{
		get:    func(i int) bool { _, err := coll.(store.Getter).Get(keys[i]); return err == nil },
		put:    func(i int) { apply(first[i : i+1]) },
		renew:  func(i int) { apply(second[i : i+1]) },
		remove: func(i int) { apply(gone[i : i+1]) },
		index: func(app int) (n int) {
			read(func(v store.View) {
				l := make([]any, 0, 100)
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
				l := make([]any, 0, v.State().Count)
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
	}
}

// cpuTime is what the process has used of the processor: the clock tells more
// about who else is on the machine.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// at is a walk through the objects that does not follow their order.
func at(n int) int { return n * 7919 % benchObjects }

func BenchmarkBeside(b *testing.B) {
	stores := []struct {
		name string
		open func(*testing.B) beside
	}{{"client-go", clientGo}, {"snapcache", snapcache}}
	each := func(what string, run func(*testing.B, beside)) {
		for _, s := range stores {
			b.Run(what+"/"+s.name, func(b *testing.B) {
				x := s.open(b)
				b.ReportAllocs()
				b.ResetTimer()
				start := cpuTime(b)
				run(b, x)
				b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N), "cpu-ns/op")
			})
		}
	}
	each("get", func(b *testing.B, x beside) {
		for n := 0; b.Loop(); n++ {
			if !x.get(at(n)) {
				b.Fatal("not there")
			}
		}
	})
	// An object goes and comes back: the store stays as large as it was.
	each("delete-and-add", func(b *testing.B, x beside) {
		for n := 0; b.Loop(); n++ {
			x.remove(at(n))
			x.put(at(n))
		}
	})
	each("update", func(b *testing.B, x beside) {
		for n := 0; b.Loop(); n++ {
			x.renew(at(n))
		}
	})
	each("index", func(b *testing.B, x beside) {
		for n := 0; b.Loop(); n++ {
			if x.index(n%200) != benchObjects/200 {
				b.Fatal("not all there")
			}
		}
	})
	each("list", func(b *testing.B, x beside) {
		for b.Loop() {
			if x.list() != benchObjects {
				b.Fatal("not all there")
			}
		}
	})
	// A list beside a writer that never rests: how long the list takes, and how many
	// writes there is room for meanwhile.
	each("list-while-writing", func(b *testing.B, x beside) {
		var stop atomic.Bool
		var written atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := 0; !stop.Load(); n++ {
				x.renew(at(n))
				written.Add(1)
			}
		}()
		b.ResetTimer()
		for b.Loop() {
			if x.list() != benchObjects {
				b.Error("not all there")
			}
		}
		b.ReportMetric(float64(written.Load())/b.Elapsed().Seconds(), "writes/s")
		stop.Store(true)
		<-done
	})
}
