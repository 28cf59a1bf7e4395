package bolt_test

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store/bolt"
)

// BenchmarkEncryption measures the cost of a key: everything is done in clear and encrypted, one
// after the other, so that the ratio does not depend on the machine. On a machine with other load,
// use the CPU time.
func BenchmarkEncryption(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, is := range []struct {
		name string
		keys bolt.Keyring
	}{{"clear", bolt.Keyring{}}, {"encrypted", bolt.Keyring{Primary: newKey(1)}}} {
		f := newFixtureUnder(b, pods, 2000, is.keys)
		opts := bolt.Options{Keys: is.keys, FlushInterval: 24 * time.Hour}
		b.Run("file/"+is.name, func(b *testing.B) {
			info, err := os.Stat(f.path)
			require.NoError(b, err)
			for range b.N {
				_ = info.Size()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(info.Size())/1e6, "file-MB")
		})
		b.Run("open/"+is.name, func(b *testing.B) { benchFirstRead(b, f, opts) })
		large := sync.OnceValue(func() *fixture { return newFixtureUnder(b, many, 200_000, is.keys) })
		b.Run("open-200000/"+is.name, func(b *testing.B) { benchFirstRead(b, large(), opts) })
		b.Run("get/"+is.name, func(b *testing.B) {
			db := openDB(b, f.path, opts)
			var keys []string
			for i := range f.count {
				o, _ := f.object(b, i, 1)
				keys = append(keys, o.Key())
			}
			b.ReportAllocs()
			b.ResetTimer()
			start := cpuTime(b)
			for n := range b.N {
				v, err := db.View(f.info.ID)
				if err == nil {
					_, err = v.Get(keys[n%f.count])
				}
				if err != nil {
					b.Fatal(err)
				}
				v.Close()
			}
			b.StopTimer()
			b.ReportMetric(us(cpuTime(b)-start)/float64(b.N), "cpu-us/op")
			require.NoError(b, db.Close())
		})
		b.Run("scan/"+is.name, func(b *testing.B) {
			db := openDB(b, f.path, opts)
			b.ReportAllocs()
			b.ResetTimer()
			start := cpuTime(b)
			benchScan(b, db, f)
			b.StopTimer()
			b.ReportMetric(us(cpuTime(b)-start)/float64(b.N*f.count), "cpu-us/object")
			require.NoError(b, db.Close())
		})
		b.Run("apply/"+is.name, func(b *testing.B) { // until all of it is flushed and folded
			db := openDB(b, f.copy(b), opts)
			c := openCollection(b, db, f.dataset.info)
			pool := f.pool(b)
			b.ReportAllocs()
			b.ResetTimer()
			start := cpuTime(b)
			for n := 0; n < b.N; n += 100 {
				applyFrom(b, c, pool, n, min(100, b.N-n))
			}
			require.NoError(b, db.Flush())
			require.NoError(b, db.Fold())
			b.StopTimer()
			b.ReportMetric(us(cpuTime(b)-start)/float64(b.N), "cpu-us/op")
			require.NoError(b, db.Close())
		})
	}
}

// benchFirstRead measures opening a database until the first object is read.
func benchFirstRead(b *testing.B, f *fixture, opts bolt.Options) {
	b.ReportAllocs()
	b.ResetTimer()
	var used time.Duration
	for range b.N {
		start := cpuTime(b)
		db := openDB(b, f.path, opts)
		v := view(b, db, f.info.ID)
		for _, err := range v.Objects("", "") {
			require.NoError(b, err)
			break
		}
		v.Close()
		used += cpuTime(b) - start
		b.StopTimer()
		require.NoError(b, db.Close())
		b.StartTimer()
	}
	b.ReportMetric(us(used)/float64(b.N), "cpu-us/op")
}
