package smoke

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/report"
)

// The stages of plan library-100000, with few pods. The driver compares each peer's content with the server's.
func TestLibrary(t *testing.T) {
	plan := driver.Plans["library-100000"]
	plan.Settle = 100 * time.Millisecond
	plan.Stages = []driver.Stage{plan.Stages[2], plan.Stages[0], plan.Stages[1]}
	plan.Stages[0].Pods, plan.Stages[0].Live = 300, 100*time.Millisecond
	plan.Stages[0].Streams = append([]driver.Stream(nil), plan.Stages[0].Streams...)
	for i := range plan.Stages[0].Streams {
		plan.Stages[0].Streams[i].Duration = 200 * time.Millisecond
	}
	plan.Stages[1].Generated, plan.Stages[2].Generated = 2, 1_700
	run, err := driver.Run(t.Context(), plan, driver.Options{Dir: t.TempDir(), Log: t.Logf})
	require.NoError(t, err)
	run.Command = "go test"
	requireStage(t, plan.Stages[0], run.Stages[0])
	for _, s := range run.Stages[0].Streams {
		require.GreaterOrEqual(t, s.Collector, 0.0, s.Peer)
		require.Less(t, s.Collector, 1.0, s.Peer)
	}
	require.Len(t, run.Stages[0].Live, 12)
	for _, f := range run.Stages[0].Live {
		require.NotEmpty(t, f.Values, f.What)
	}
	require.Positive(t, run.Stages[0].Live[0].Values[0], "requests a second")
	for _, st := range run.Stages {
		for _, x := range st.Turns {
			require.Positive(t, x.PeakOwn, x.Peer)
			require.GreaterOrEqual(t, x.Peak+x.Tables, x.PeakOwn, "%s: all its memory", x.Peer)
			handled := x.Scenario == driver.FirstHandled || x.Scenario == driver.Handled
			require.Equal(t, handled, x.HandledSeconds > 0, "%s of %s", x.Scenario, x.Peer)
		}
	}
	for i, n := range []int{2, 1_700} { // before the report sorts them
		st := run.Stages[1+i]
		require.Equal(t, n, st.Objects)
		require.Greater(t, st.JSONBytes, int64(5_000*n))
		require.Len(t, st.Turns, 1)
		require.Positive(t, st.Turns[0].DiskBytes)
		require.Positive(t, st.Turns[0].Received)
	}

	out := t.TempDir()
	require.NoError(t, report.Write(run, out))
	require.NotContains(t, pageOf(t, out, "library.md"), "not measured")
	require.FileExists(t, filepath.Join(out, "library-memory.svg"))
	require.NoFileExists(t, filepath.Join(out, "side-by-side.md"))
}
