package bolt_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// docs/performance.md lists the benchmarks and their targets. No test asserts on times: they depend
// on the machine.

// listPage is how many items a page of a list has, as the reflector requests it.
const listPage = 500

// fixture is a database with one complete list in it, closed.
type fixture struct {
	dataset
	path        string
	sent, bytes int64 // of all objects: as the server sends them, and as stored
}

// newFixture makes a database of the first count objects.
func newFixture(b *testing.B, d dataset, count int) *fixture {
	return newFixtureUnder(b, d, count, bolt.Keyring{})
}

// newFixtureUnder is newFixture with a key.
func newFixtureUnder(b *testing.B, d dataset, count int, keys bolt.Keyring) *fixture {
	d.count = count
	f := &fixture{dataset: d, path: filepath.Join(b.TempDir(), "list.db")}
	db := openDB(b, f.path, bolt.Options{Keys: keys})
	c := openCollection(b, db, d.info)
	r, err := c.Replace()
	require.NoError(b, err)
	for order := d.listOrder(b); len(order) > 0; {
		var page []store.Change
		for _, i := range order[:min(listPage, len(order))] {
			o, n := d.object(b, i, 1)
			f.sent, f.bytes = f.sent+int64(n), f.bytes+int64(o.Size())
			page = append(page, store.Change{Key: o.Key(), Object: o})
		}
		order = order[len(page):]
		require.NoError(b, r.Apply(page))
	}
	require.NoError(b, r.Commit(checkpointAt(storetest.PodRV(0, 2), time.Now())))
	require.NoError(b, db.Close())
	return f
}

// copy copies the database to a path of its own.
func (f *fixture) copy(b *testing.B) string {
	path := filepath.Join(b.TempDir(), "copy.db")
	copyFile(b, f.path, path)
	return path
}

func copyFile(b *testing.B, from, to string) {
	src, err := os.Open(from)
	require.NoError(b, err)
	defer src.Close()
	dst, err := os.Create(to)
	require.NoError(b, err)
	_, err = io.Copy(dst, src)
	require.NoError(b, err)
	require.NoError(b, dst.Sync())
	require.NoError(b, dst.Close())
}

// withJournal returns a copy as a kill leaves it just before a fold of the journal.
func (f *fixture) withJournal(b *testing.B) string {
	live := f.copy(b)
	db := openDB(b, live, bolt.Options{FlushInterval: 24 * time.Hour})
	c := openCollection(b, db, f.dataset.info)
	s := newSource("journal", f.count)
	path := filepath.Join(b.TempDir(), "journal.db")
	for n, bytes, cells := 0, 0, 0; ; n++ {
		var changes []store.Change
		for _, i := range s.Perm(f.count)[:200] {
			changes = append(changes, f.change(b, i, 3+n))
		}
		require.NoError(b, c.Apply(store.Batch{Changes: changes, Checkpoint: checkpointAt(storetest.PodRV(999_999, 3+n), time.Now())}))
		require.NoError(b, db.Flush())
		var near bool
		if near, bytes, cells = db.NearFold(bytes, cells); near {
			b.Logf("%s of %d: journal of %d bytes, %d cells, after %d batches of 200", f.name, f.count, bytes, cells, n+1)
			copyFile(b, live, path)
			require.NoError(b, db.Close())
			return path
		}
	}
}

// BenchmarkOpen measures the time from no process to the first object read. "reader" opens the file
// and takes a view; "agent" opens the collection for writing first.
func BenchmarkOpen(b *testing.B) {
	for _, d := range []struct {
		dataset
		count int
	}{{pods, 20_000}, {many, 2_000}, {many, 200_000}} {
		f := newFixture(b, d.dataset, d.count)
		for _, file := range []struct{ name, path string }{{"clean", f.copy(b)}, {"journal", f.withJournal(b)}} {
			for _, who := range []string{"reader", "agent"} {
				b.Run(fmt.Sprintf("%s-%d/%s/%s", d.name, d.count, file.name, who), func(b *testing.B) {
					path := filepath.Join(b.TempDir(), "open.db")
					var times []time.Duration
					var used time.Duration
					for range b.N {
						b.StopTimer()
						copyFile(b, file.path, path)
						runtime.GC()  // without the garbage of the iteration before
						coldCaches(b) // a copy of a large file evicts the caches, one of a small file does not
						b.StartTimer()
						start, cpu := time.Now(), cpuTime(b)
						db := openDB(b, path, bolt.Options{})
						if who == "agent" {
							openCollection(b, db, f.dataset.info)
						}
						v := view(b, db, f.info.ID)
						for _, err := range v.Objects("", "") {
							require.NoError(b, err)
							break
						}
						times, used = append(times, time.Since(start)), used+cpuTime(b)-cpu
						b.StopTimer()
						v.Close()
						require.NoError(b, db.Close())
						b.StartTimer()
					}
					slices.Sort(times)
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(ms(times[len(times)/2]), "ms/open")
					b.ReportMetric(ms(used)/float64(b.N), "cpu-ms/open")
				})
			}
		}
	}
}

// large is more bytes than a processor's caches hold.
var large = make([]byte, 64<<20)

// coldCaches evicts all else from the processor's caches: this process's memory and, by writing a
// large file, the kernel's.
func coldCaches(b *testing.B) {
	for i := 0; i < len(large); i += 64 {
		large[i]++
	}
	path := filepath.Join(b.TempDir(), "large")
	require.NoError(b, os.WriteFile(path, large, 0o600))
	require.NoError(b, os.Remove(path))
}

// cpuTime returns the CPU time of this process, garbage collection included. Unlike the wall clock
// it does not depend on other processes.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// BenchmarkRead measures reads through a view on one core: all objects, and one by key.
func BenchmarkRead(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, d := range []dataset{pods, many} {
		f := newFixture(b, d, d.count)
		info, err := os.Stat(f.path)
		require.NoError(b, err)
		b.Run(d.name+"/file", func(b *testing.B) {
			for range b.N {
				_ = info.Size()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(info.Size())/1e6, "file-MB")
			b.ReportMetric(100*float64(info.Size())/float64(f.sent), "%-of-sent")
			b.ReportMetric(100*float64(info.Size())/float64(f.bytes), "%-of-kept")
		})
		db := openDB(b, f.path, bolt.Options{})
		v := view(b, db, f.info.ID)
		v.Close()
		b.Run(d.name+"/scan", func(b *testing.B) { benchScan(b, db, f) })
		b.Run(d.name+"/headers", func(b *testing.B) {
			for range b.N {
				v := view(b, db, f.info.ID)
				for _, err := range v.Headers("", "") {
					if err != nil {
						b.Fatal(err) // require would be a third of the time
					}
				}
				v.Close()
			}
			b.ReportMetric(float64(b.N*f.count)/b.Elapsed().Seconds(), "headers/s")
		})
		var keys []string
		s := newSource("get", 1)
		for range 4096 {
			o, _ := f.object(b, s.IntN(f.count), 1)
			keys = append(keys, o.Key())
		}
		b.Run(d.name+"/get", func(b *testing.B) {
			v := view(b, db, f.info.ID)
			defer func() { v.Close() }()
			start := cpuTime(b)
			for n := range b.N {
				if n%4096 == 4095 {
					v.Close() // views have a time limit
					v = view(b, db, f.info.ID)
				}
				if _, err := v.Get(keys[n%4096]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(us(cpuTime(b)-start)/float64(b.N), "cpu-us/op")
		})
		b.Run(d.name+"/view-get-close", func(b *testing.B) {
			for n := range b.N {
				v, err := db.View(f.info.ID)
				if err == nil {
					_, err = v.Get(keys[n%4096])
				}
				if err != nil {
					b.Fatal(err)
				}
				v.Close()
			}
		})
		require.NoError(b, db.Close())
	}
}

func benchScan(b *testing.B, db *bolt.DB, f *fixture) {
	var bytes int64
	start := cpuTime(b)
	for range b.N {
		v := view(b, db, f.info.ID)
		for o, err := range v.Objects("", "") {
			if err != nil {
				b.Fatal(err)
			}
			bytes += int64(o.Size())
		}
		v.Close()
	}
	require.EqualValues(b, int64(b.N)*f.bytes, bytes)
	wall, cpu := b.Elapsed().Seconds(), (cpuTime(b) - start).Seconds()
	b.ReportMetric(float64(bytes)/1e6/wall, "kept-MB/s")
	b.ReportMetric(float64(bytes)/1e6/cpu, "kept-MB/cpu-s")
	b.ReportMetric(float64(int64(b.N)*f.sent)/1e6/cpu, "sent-MB/cpu-s")
}

// poolSize is how many changes are made before the clock runs.
const poolSize = 16384

func (f *fixture) pool(b *testing.B) []store.Change {
	s := newSource("pool", f.count)
	pool := make([]store.Change, poolSize)
	for n := range pool {
		pool[n] = f.change(b, s.IntN(f.count), 2)
	}
	return pool
}

// BenchmarkApply measures how many changes a second the store takes: into memory alone, without a
// flush while the timer runs, and sustained, until all is on disk.
func BenchmarkApply(b *testing.B) {
	for _, d := range []dataset{pods, many} {
		f := newFixture(b, d, d.count)
		pool := f.pool(b)
		for _, batch := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/memory/batch-%d", d.name, batch), func(b *testing.B) {
				db := openDB(b, f.copy(b), bolt.Options{FlushInterval: 24 * time.Hour})
				c := openCollection(b, db, f.dataset.info)
				var used time.Duration
				b.ResetTimer()
				start := cpuTime(b)
				for n := 0; n < b.N; n += batch {
					if n > 0 && n%400 == 0 { // well before there is 1 MiB to flush
						b.StopTimer()
						used += cpuTime(b) - start
						require.NoError(b, db.Flush())
						start = cpuTime(b)
						b.StartTimer()
					}
					applyFrom(b, c, pool, n, min(batch, b.N-n))
				}
				b.StopTimer()
				used += cpuTime(b) - start
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
				b.ReportMetric(float64(b.N)/used.Seconds(), "changes/cpu-s")
				require.NoError(b, db.Close())
			})
			b.Run(fmt.Sprintf("%s/sustained/batch-%d", d.name, batch), func(b *testing.B) {
				db := openDB(b, f.copy(b), bolt.Options{})
				c := openCollection(b, db, f.dataset.info)
				b.ResetTimer()
				start := cpuTime(b)
				for n := 0; n < b.N; n += batch {
					applyFrom(b, c, pool, n, min(batch, b.N-n))
				}
				require.NoError(b, db.Flush())
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
				b.ReportMetric(float64(b.N)/(cpuTime(b)-start).Seconds(), "changes/cpu-s")
				require.NoError(b, db.Close())
			})
		}
	}
}

// applyFrom applies one batch of the pool, whose keys must be unique.
func applyFrom(b *testing.B, c store.Collection, pool []store.Change, n, size int) {
	n %= poolSize - size
	changes := pool[n : n+size]
	if size > 1 {
		seen := make(map[string]bool, size)
		changes = slices.DeleteFunc(slices.Clone(changes), func(ch store.Change) bool {
			again := seen[ch.Key]
			seen[ch.Key] = true
			return again
		})
	}
	err := c.Apply(store.Batch{Changes: changes, Checkpoint: checkpointAt(changes[0].Object.GetResourceVersion(), time.Time{})})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkViewBesideWrites measures how long it takes to get a view and one object through it,
// while a writer applies, flushes and folds as fast as it can.
func BenchmarkViewBesideWrites(b *testing.B) {
	for _, d := range []dataset{pods, many} {
		f := newFixture(b, d, d.count)
		pool := f.pool(b)
		for _, batch := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/batch-%d", d.name, batch), func(b *testing.B) {
				db := openDB(b, f.copy(b), bolt.Options{})
				c := openCollection(b, db, f.dataset.info)
				var stop atomic.Bool
				var writer sync.WaitGroup
				var written atomic.Int64
				writer.Go(func() {
					for n := 0; !stop.Load(); n += batch {
						applyFrom(b, c, pool, n, batch)
						written.Store(int64(n))
					}
				})
				taken, got := make([]time.Duration, 0, b.N), make([]time.Duration, 0, b.N)
				b.ResetTimer()
				for n := range b.N {
					start := time.Now()
					v, err := db.View(f.info.ID)
					taken = append(taken, time.Since(start))
					if err == nil {
						_, err = v.Get(pool[n%poolSize].Key)
					}
					if err != nil {
						b.Fatal(err)
					}
					v.Close()
					got = append(got, time.Since(start))
					time.Sleep(100 * time.Microsecond) // a reader, not a second load
				}
				b.StopTimer()
				stop.Store(true)
				writer.Wait()
				slices.Sort(taken)
				slices.Sort(got)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(written.Load())/b.Elapsed().Seconds(), "changes/s")
				b.ReportMetric(us(taken[b.N/2]), "view-p50-us")
				b.ReportMetric(us(taken[b.N*99/100]), "view-p99-us")
				b.ReportMetric(us(got[b.N/2]), "get-p50-us")
				b.ReportMetric(us(got[b.N*99/100]), "get-p99-us")
				require.NoError(b, db.Close())
			})
		}
	}
}
