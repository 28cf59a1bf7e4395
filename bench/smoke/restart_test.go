package smoke

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/report"
)

// Nodes return after a restart of the apiserver. The driver compares the objects of all nodes with the
// server's.
func TestRestart(t *testing.T) {
	const nodes = 4
	plan := driver.Plan{Name: "return", Settle: 100 * time.Millisecond, Stages: []driver.Stage{{
		Name: "nodes-4", Pods: nodes * 24, Restart: &driver.Restart{Nodes: nodes, ConfigMaps: 400, Services: 300, Rounds: 1, Share: 0.005},
	}}}
	run, err := driver.Run(t.Context(), plan, driver.Options{Dir: t.TempDir(), Log: t.Logf})
	require.NoError(t, err)
	run.Command = "go test"
	all := run.Stages[0].Restarts
	require.Len(t, all, 3)
	for _, r := range all {
		require.Positive(t, r.Wire.Received, r.Way)
		require.Equal(t, 9, r.Changed, "the marks, two configmaps, a service and an endpointslice")
	}
	require.Less(t, all[2].Wire.Received, all[1].Wire.Received/2, "versions are less than whole objects")
	require.Less(t, all[1].Wire.Received, all[0].Wire.Received/2, "compressed lists are less than client-go's")

	out := t.TempDir()
	require.NoError(t, report.Write(run, out))
	pageOf(t, out, "return.md")
}
