package smoke

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/report"
	"github.com/snapcache/snapcache/bench/result"
)

// The plan "smoke" works on a real control plane. The driver itself compares each peer's content
// with the server; this test checks that the figures exist.
func TestSmoke(t *testing.T) {
	plan := driver.Plans["smoke"]
	dir, out := t.TempDir(), t.TempDir()
	run, err := driver.Run(t.Context(), plan, driver.Options{Dir: dir, Log: t.Logf})
	require.NoError(t, err)
	run.Command = "go test"
	require.Len(t, run.Stages, len(plan.Stages))
	for i, st := range run.Stages {
		requireStage(t, plan.Stages[i], st)
	}

	again, err := driver.Run(t.Context(), plan, driver.Options{Dir: dir, Log: t.Logf})
	require.NoError(t, err)
	require.Equal(t, run.Stages, again.Stages, "a repeated run continues after its complete stages")

	require.NoError(t, report.Write(run, out))
	pageOf(t, out, "side-by-side.md")
	pageOf(t, out, "fleets.md")
	require.FileExists(t, filepath.Join(out, "side-by-side", "first-read.svg"))
	require.NotContains(t, pageOf(t, out, "api.md"), "not measured")
	var read result.Run
	require.NoError(t, result.Read(filepath.Join(out, "side-by-side.json"), &read))
	require.Equal(t, run.Stages, read.Stages)

	require.NoError(t, driver.Forget(plan, driver.Options{Dir: dir}, run))
	kept, err := filepath.Glob(filepath.Join(dir, "smoke-*"))
	require.NoError(t, err)
	require.Empty(t, kept)
}

func requireStage(t *testing.T, plan driver.Stage, st result.Stage) {
	t.Helper()
	require.GreaterOrEqual(t, st.Objects, plan.Pods+4*plan.Others)
	require.Greater(t, st.JSONBytes, int64(1000*st.Objects))
	turns := 0
	for _, r := range plan.Rounds {
		turns += len(r.Peers)
	}
	require.Len(t, st.Turns, turns)
	for _, x := range st.Turns {
		requireCost(t, x.Scenario+" of "+x.Peer, x.Cost)
		stored := x.Peer == driver.Agent || x.Peer == driver.LibraryBolt || x.Peer == driver.LibraryLimited
		require.Equal(t, stored, x.DiskBytes > 0, "%s: on disk", x.Peer)
		first := st.Turns[0] // of the agent
		switch resumes := x.Scenario == driver.Restart0; {
		case resumes && stored:
			require.Less(t, x.Received, first.Received, "%s resumes", x.Peer)
		case resumes:
			require.Greater(t, x.Received, first.Received, "%s lists", x.Peer)
		}
	}
	streams := 0
	for _, s := range plan.Streams {
		streams += len(s.Peers)
	}
	require.Len(t, st.Streams, streams)
	for _, s := range st.Streams {
		require.Equal(t, s.Changes, s.Handled.Count, s.Peer)
		require.Positive(t, s.Handled.P50, s.Peer)
		require.GreaterOrEqual(t, s.Handled.P99, s.Handled.P50, s.Peer)
		require.Positive(t, s.CPU, s.Peer)
	}
	for _, f := range st.API {
		require.NotEmpty(t, f.Values, "%s of %s", f.What, f.Of)
	}
	require.Equal(t, plan.API == nil, len(st.API) == 0)
	fleets := 0
	for _, f := range plan.Fleets {
		fleets += 4 * f.Rounds
	}
	require.Len(t, st.Fleets, fleets)
	for _, f := range st.Fleets {
		name := f.Scenario + " of " + f.Peer
		requireCost(t, name, f.Cost)
		require.GreaterOrEqual(t, f.Connections, f.Nodes, "%s: each node has a connection", name)
		require.GreaterOrEqual(t, f.Requests["WATCH"], 2*f.Nodes, "%s: each node watches two resources", name)
	}
}

func requireCost(t *testing.T, name string, c result.Cost) {
	t.Helper()
	require.Positive(t, c.ReadSeconds, name)
	require.GreaterOrEqual(t, c.CaughtUpSeconds, c.ReadSeconds, name)
	require.Positive(t, c.CaughtUpCPU, name)
	require.GreaterOrEqual(t, c.SettledCPU, c.CaughtUpCPU, name)
	require.Positive(t, c.Received, name)
	require.Positive(t, c.Sent, name)
	require.Positive(t, c.Anon, name)
	require.Positive(t, c.File, name)
	require.GreaterOrEqual(t, c.Peak, c.Anon, name)
	require.False(t, math.IsNaN(c.ServerCPU), name)
}

// pageOf reads a page of a report, whose figures must be numbers.
func pageOf(t *testing.T, dir, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	require.NotContains(t, string(page), "NaN", name)
	return string(page)
}
