package memory_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

const benchObjects = 20_000

// benchObject returns one of benchObjects, which has a value in each of two indexes.
func benchObject(i, rv int) *object.Object {
	return storetest.Object("ns-"+strconv.Itoa(i%50), "name-"+strconv.Itoa(i), "uid-"+strconv.Itoa(i), strconv.Itoa(rv),
		map[string]string{"app": "app-" + strconv.Itoa(i%200)}, "payload-"+strconv.Itoa(i%1000))
}

func benchCollection(b *testing.B) (store.Collection, []string) {
	db := memory.New()
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	coll, err := db.Open(storetest.Info("configmaps"), store.LabelIndex("app", "app"), store.FieldIndex("payload", "data.payload"))
	require.NoError(b, err)
	r, err := coll.Replace()
	require.NoError(b, err)
	keys := make([]string, benchObjects)
	for i := range keys {
		ch := storetest.Put(benchObject(i, 1))
		keys[i] = ch.Key
		require.NoError(b, r.Apply([]store.Change{ch}))
	}
	require.NoError(b, r.Commit(storetest.Checkpoint(1)))
	return coll, keys
}

func benchView(b *testing.B, coll store.Collection) store.View {
	v, err := coll.View()
	if err != nil {
		b.Fatal(err)
	}
	return v
}

func BenchmarkGet(b *testing.B) {
	coll, keys := benchCollection(b)
	v := benchView(b, coll)
	defer v.Close()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := v.Get(keys[i%len(keys)]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGetOfView measures a view, one get and the close together.
func BenchmarkGetOfView(b *testing.B) {
	coll, keys := benchCollection(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			v, err := coll.View()
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := v.Get(keys[i%len(keys)]); err != nil {
				b.Error(err)
			}
			v.Close()
		}
	})
}

func BenchmarkApplyUpdate(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run("changes="+strconv.Itoa(size), func(b *testing.B) {
			coll, _ := benchCollection(b)
			var changes []store.Change
			for i := range benchObjects {
				changes = append(changes, storetest.Put(benchObject(i, 2)))
			}
			// The stride visits all keys, but not in key order.
			stride, cp := 7919, storetest.Checkpoint(2)
			batch := make([]store.Change, size)
			b.ReportAllocs()
			for n := 0; b.Loop(); {
				for i := range batch {
					batch[i] = changes[n*stride%benchObjects]
					n++
				}
				if err := coll.Apply(store.Batch{Changes: batch, Checkpoint: cp}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/change")
		})
	}
}

// listView reads a whole view.
func listView(b *testing.B, coll store.Collection) {
	v := benchView(b, coll)
	defer v.Close()
	n := 0
	for _, err := range v.Objects("", "") {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	if n != benchObjects {
		b.Fatalf("%d objects", n)
	}
}

func BenchmarkViewList(b *testing.B) {
	coll, _ := benchCollection(b)
	b.ReportAllocs()
	for b.Loop() {
		listView(b, coll)
	}
}

// BenchmarkViewListWhileWriting lists beside a writer that never pauses.
func BenchmarkViewListWhileWriting(b *testing.B) {
	coll, _ := benchCollection(b)
	var changes []store.Change
	for i := range benchObjects {
		changes = append(changes, storetest.Put(benchObject(i, 2)))
	}
	stop, done, written := make(chan struct{}), make(chan error, 1), 0
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := coll.Apply(store.Batch{Changes: changes[written*7919%benchObjects:][:1]}); err != nil {
				done <- err
				return
			}
			written++
		}
	}()
	for b.Loop() {
		listView(b, coll)
	}
	elapsed := b.Elapsed()
	close(stop)
	require.NoError(b, <-done)
	b.ReportMetric(float64(written)/elapsed.Seconds(), "writes/s")
}
