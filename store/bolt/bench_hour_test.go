package bolt_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// simClock is a fake clock whose timers may call it: the fake clock of clock/testing holds its lock
// while it calls them.
type simClock struct {
	*clocktesting.FakeClock
	due []func()
}

func newSimClock() *simClock {
	return &simClock{FakeClock: clocktesting.NewFakeClock(time.Date(2026, time.June, 1, 0, 0, 0, 0, time.UTC))}
}

// AfterFunc calls f in the Step that reaches its time.
func (c *simClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return c.FakeClock.AfterFunc(d, func() { c.due = append(c.due, f) })
}

func (c *simClock) step(d time.Duration) {
	c.FakeClock.Step(d)
	due := c.due
	c.due = nil
	for _, f := range due {
		f()
	}
}

// written returns how many bytes this process has passed to write calls so far. bbolt's own
// statistics omit part of them: the further pages of a value that spans some.
func written(b *testing.B) int64 {
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip("bytes written are counted on Linux only")
	}
	var n int64
	_, after, ok := bytes.Cut(raw, []byte("wchar: "))
	require.True(b, ok)
	_, err = fmt.Sscan(string(after), &n)
	require.NoError(b, err)
	return n
}

// liveHeap returns the bytes of the heap in use after a garbage collection, without the pages that
// bbolt pools between transactions: see BenchmarkFold.
func liveHeap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // a pool outlives the first
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// BenchmarkHour measures how many bytes changes of random objects, at an even rate and with the
// default options, write to the file, beside a plain bbolt database with one commit a change, and
// the live heap.
//
// It measures the steady state: first a day goes by, or as much of it as changes most objects, so
// that history and file have their final size. Then it measures some hours, from the end of one
// fold to the end of another, and divides by their number, so that each hour has its share of the
// folds.
//
// In the last part only 2,000 of the objects change: the history has as many entries of few objects
// as of many, and the heap is the same.
func BenchmarkHour(b *testing.B) {
	const few = 2_000
	for _, d := range []struct {
		dataset
		count, changed int
	}{
		{pods, few, few}, {pods, 20_000, 20_000}, {many, few, few}, {many, 200_000, 200_000},
		{pods, 20_000, few}, {many, 20_000, few}, {many, 200_000, few}, {many, 400_000, few},
	} {
		f := newFixture(b, d.dataset, d.count)
		plain := plainBytes(b, f)
		for _, rate := range []int{1, 10} {
			b.Run(fmt.Sprintf("%s-%d/changed-%d/rate-%d", d.name, d.count, d.changed, rate), func(b *testing.B) {
				for range b.N {
					h := f.hour(b, d.changed, rate)
					b.ReportMetric(h.bytes/1e6, "MB-written/hour")
					b.ReportMetric(h.bytes/float64(3600*rate), "B/change")
					b.ReportMetric(plain, "plain-B/change")
					b.ReportMetric(100*h.bytes/float64(3600*rate)/plain, "%-of-plain")
					b.ReportMetric(h.peak, "heap-peak-MB")
					b.ReportMetric(h.commits, "commits/hour")
					b.ReportMetric(h.hours, "hours")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

type hour struct {
	bytes, commits float64 // an hour
	peak           float64
	hours          float64 // measured
}

// hour changes random ones of changed objects, rate of them a second, and returns the averages of
// an hour.
func (f *fixture) hour(b *testing.B, changed, rate int) (h hour) {
	path := f.copy(b)
	before := liveHeap()
	sim := newSimClock()
	db := openDB(b, path, bolt.Options{Clock: sim})
	c := openCollection(b, db, f.dataset.info)
	s := newSource("hour", rate)
	version := 3
	// changes applies n changes, one by one if they are few and in one batch otherwise, and advances
	// the clock by the time that they take.
	changes := func(n int) {
		var batch []store.Change
		seen := map[int]bool{}
		for len(batch) < n {
			version++
			if i := s.IntN(changed); !seen[i] {
				seen[i] = true
				batch = append(batch, f.change(b, i*(f.count/changed), version))
			}
		}
		if n <= 10 {
			for _, ch := range batch {
				require.NoError(b, c.Apply(store.Batch{Changes: []store.Change{ch}, Checkpoint: checkpointAt(ch.Object.GetResourceVersion(), sim.Now())}))
			}
		} else {
			require.NoError(b, c.Apply(store.Batch{Changes: batch, Checkpoint: checkpointAt(batch[n-1].Object.GetResourceVersion(), sim.Now())}))
		}
		sim.step(time.Duration(n) * time.Second / time.Duration(rate))
	}
	for n := 0; n < min(24*3600*rate, 2*changed); n += 200 {
		changes(200)
	}
	folded := func() bool {
		was := db.JournalBytes()
		changes(rate)
		return db.JournalBytes() < was
	}
	for !folded() {
	}
	start, opened, commits := sim.Now(), written(b), db.Stats().Commits
	for second := 0; ; second++ {
		if second%600 == 0 {
			h.peak = max(h.peak, liveHeap()-before)
		}
		if folded() && sim.Since(start) >= time.Hour {
			break
		}
	}
	h.hours = sim.Since(start).Hours()
	h.bytes = float64(written(b)-opened) / h.hours
	h.commits = float64(db.Stats().Commits-commits) / h.hours
	require.NoError(b, db.Close())
	return h
}

// plainBytes returns the bytes that a change costs in a database that has the same records and puts
// each change and the checkpoint into a transaction of their own.
func plainBytes(b *testing.B, f *fixture) float64 {
	const changes = 500
	path := filepath.Join(b.TempDir(), "plain.db")
	var keys, records [][]byte
	src := openRaw(b, f.path, &bbolt.Options{ReadOnly: true})
	require.NoError(b, src.View(func(tx *bbolt.Tx) error {
		all := tx.Bucket([]byte("c")).Bucket([]byte(f.info.ID))
		return all.ForEachBucket(func(gen []byte) error {
			return all.Bucket(gen).Bucket([]byte("objects")).ForEach(func(k, v []byte) error {
				keys, records = append(keys, bytes.Clone(k)), append(records, bytes.Clone(v))
				return nil
			})
		})
	}))
	require.NoError(b, src.Close())
	db := openRaw(b, path, &bbolt.Options{FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 30})
	objects, state := []byte("objects"), []byte("state")
	require.NoError(b, db.Update(func(tx *bbolt.Tx) error {
		o, err := tx.CreateBucket(objects)
		require.NoError(b, err)
		o.FillPercent = 0.95
		_, err = tx.CreateBucket(state)
		require.NoError(b, err)
		for i, k := range keys {
			require.NoError(b, o.Put(k, records[i]))
		}
		return nil
	}))
	s := newSource("plain", f.count)
	before := written(b)
	for range changes {
		i := s.IntN(len(keys))
		require.NoError(b, db.Update(func(tx *bbolt.Tx) error {
			require.NoError(b, tx.Bucket(objects).Put(keys[i], records[i]))
			return tx.Bucket(state).Put(state, make([]byte, 200))
		}))
	}
	total := float64(written(b) - before)
	require.NoError(b, db.Close())
	return total / changes
}

// BenchmarkFold folds a full journal. It reports the time, the bytes written, and the highest heap
// in use meanwhile, garbage included.
func BenchmarkFold(b *testing.B) {
	for _, d := range []dataset{pods, many} {
		f := newFixture(b, d, d.count)
		journal := f.withJournal(b)
		b.Run(d.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "fold.db")
			for range b.N {
				b.StopTimer()
				copyFile(b, journal, path)
				db := openDB(b, path, bolt.Options{})
				start, before := liveHeap(), written(b)
				stop := watchHeap()
				b.StartTimer()
				require.NoError(b, db.Fold())
				b.StopTimer()
				b.ReportMetric(stop()-start, "heap-peak-MB")
				b.ReportMetric(float64(written(b)-before)/1e6, "MB-written")
				require.NoError(b, db.Close())
				b.StartTimer()
			}
		})
	}
}

// watchHeap samples the heap until stop is called, which returns the largest size.
func watchHeap() (stop func() float64) {
	done, peak := make(chan struct{}), make(chan float64)
	go func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		var most uint64
		for {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-done:
				peak <- float64(most) / 1e6
				return
			case <-tick.C:
			}
		}
	}()
	return func() float64 { close(done); return <-peak }
}
