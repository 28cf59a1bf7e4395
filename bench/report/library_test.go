package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// libraryExample is a run whose figures reach each target exactly.
func libraryExample() *result.Run {
	cost := func(own int64, cpu float64) result.Cost {
		return result.Cost{
			ReadSeconds: 1, CaughtUpSeconds: 1, HandledSeconds: 1, SettledCPU: cpu, PeakOwn: own, DiskBytes: 1,
			Memory: measure.Memory{Peak: 2 * own, Anon: own - 1000, Tables: 1000, File: own}, Collector: 0.1,
		}
	}
	st := result.Stage{Name: large, Objects: 100_000, Live: []result.Figure{{What: "a get: p99", Of: driver.NoCache, Unit: "s", Values: []float64{0.004}}}}
	for _, scenario := range []string{driver.First, driver.FirstHandled, driver.Handled, driver.Expired} {
		st.Turns = append(st.Turns,
			result.Turn{Scenario: scenario, Peer: driver.LibraryBolt, Cost: cost(50e6, 4)},
			result.Turn{Scenario: scenario, Peer: driver.Typed, Cost: cost(1000e6, 8)},
			result.Turn{Scenario: scenario, Peer: driver.LibraryLimited, Cost: cost(64<<20, 8)})
	}
	stream := func(peer string, cpu, p99, collector float64) result.Stream {
		return result.Stream{Peer: peer, Rate: 100, Changes: 1000, CPU: cpu, Handled: result.Delay{Count: 1000, P50: p99, P99: p99}, Collector: collector}
	}
	st.Streams = []result.Stream{
		stream(driver.LibraryBolt, 1.3, 0.02, 0.1), stream(driver.Typed, 1, 0.02, 0.1), stream(driver.LibraryLimited, 1.3, 0.02, 0.25),
		stream(driver.LibraryBolt, 9, 0.2, 0.1), stream(driver.Typed, 1, 0.2, 0.1),
	}
	st.Streams[2].PeakOwn = 64 << 20
	st.Streams[3].Busy, st.Streams[4].Busy = true, true
	generated := result.Stage{Name: "generated-1000000", Objects: 1_000_000, Turns: []result.Turn{
		{Scenario: driver.FirstHandled, Peer: driver.LibraryBolt, Cost: cost(60e6, 40)},
	}}
	return &result.Run{Command: "make bench-library-100000", Note: "a busy machine", Stages: []result.Stage{st, generated}}
}

func TestLibraryTargets(t *testing.T) {
	reached := func(run *result.Run) (n int) {
		all := largeTargets(&run.Stages[0])
		require.Len(t, all, 14)
		for _, target := range all {
			if judge(target).text == "reached" {
				n++
			}
		}
		return n
	}
	require.Equal(t, 14, reached(libraryExample()))
	for i, worsen := range []func(*result.Stage){
		func(st *result.Stage) { st.Turns[0].PeakOwn++ },
		func(st *result.Stage) { st.Turns[3].PeakOwn++ },
		func(st *result.Stage) { st.Turns[9].PeakOwn++ },
		func(st *result.Stage) { st.Turns[3].Anon++ },
		func(st *result.Stage) { st.Turns[6].Tables++ },
		func(st *result.Stage) { st.Streams[0].CPU = 1.31 },
		func(st *result.Stage) { st.Streams[0].Handled.P99 = 0.021 },
		func(st *result.Stage) { st.Streams[3].Handled.P99 = 0.21 },
		func(st *result.Stage) { st.Turns[6].SettledCPU = 4.1 },
		func(st *result.Stage) { st.Streams[2].Collector = 0.26 },
		func(st *result.Stage) { st.Turns[5].PeakOwn++ },
		func(st *result.Stage) { st.Turns[8].PeakOwn++ },
		func(st *result.Stage) { st.Turns[11].PeakOwn++ },
		func(st *result.Stage) { st.Streams[2].PeakOwn++ },
	} {
		run := libraryExample()
		worsen(&run.Stages[0])
		require.Equal(t, 13, reached(run), "worse: %d", i)
		require.NotEqual(t, "reached", judge(largeTargets(&run.Stages[0])[i]).text)
	}
}

func TestLibraryPage(t *testing.T) {
	out, page := written(t, libraryExample(), "library.md")
	require.Contains(t, page, "| peak of its own memory on the first sync | 50 MB | 1.0 GB | at most 0.05x | 0.05x | reached |")
	require.Contains(t, page, "| generated-1000000 | library-bolt | 60 MB | 60 MB | 60 MB | 1 B | 1.0 s | 1.0 s | 40 µs |")
	require.Contains(t, page, "| note | a busy machine |")
	require.Contains(t, page, "| a get: p99 | 4.0 ms |")
	require.NotRegexp(t, `\|\s*\|\s*\n`, page, "the house's pages on the library have no empty last cell")
	requireTables(t, page)
	chart, err := os.ReadFile(filepath.Join(out, "library-memory.svg"))
	require.NoError(t, err)
	for _, name := range []string{"typed, settled", "library-bolt, peak", "library-bolt, settled"} {
		require.Contains(t, string(chart), name)
	}
	require.True(t, strings.HasPrefix(string(chart), "<?xml"))
}
