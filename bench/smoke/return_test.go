package smoke

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/report"
)

// A small fleet comes back in each way. The driver compares the objects of all nodes with the server's.
func TestReturn(t *testing.T) {
	const nodes, listing = 10, 3
	plan := driver.Plan{Name: "return", Settle: 100 * time.Millisecond, Stages: []driver.Stage{{
		Name: "pods-400", Pods: 400, Return: &driver.Return{Nodes: nodes, Listing: listing, Hubs: 2, Share: 0.02},
	}}}
	run, err := driver.Run(t.Context(), plan, driver.Options{Dir: t.TempDir(), Log: t.Logf})
	require.NoError(t, err)
	run.Command = "go test"
	all := run.Stages[0].Returns
	require.Len(t, all, 4)
	for i, r := range all {
		requireCost(t, r.Way, r.Cost)
		require.Positive(t, r.Wire.Received, r.Way)
		require.Equal(t, 8, r.Changed, "of 399, and the mark")
		require.Equal(t, []int{listing, listing, nodes, nodes}[i], r.Nodes, r.Way)
		require.GreaterOrEqual(t, r.Wire.Connections, r.Nodes, r.Way)
	}
	require.Equal(t, listing, all[1].Lists, "the apiserver does not remember the outage")
	for _, r := range all[2:] {
		require.Zero(t, r.Lists, "the hubs do")
		require.GreaterOrEqual(t, r.Requests["tokenreviews"], nodes, "a review for each token, and again after a minute")
		require.Len(t, r.Hubs, 2)
		for _, h := range r.Hubs {
			require.Equal(t, nodes/2, h.Nodes)
			require.Positive(t, h.CPU)
			require.Positive(t, h.After.Peak)
		}
	}
	require.Less(t, all[2].Requests["subjectaccessreviews"], all[3].Requests["subjectaccessreviews"], "of fewer users")

	out := t.TempDir()
	require.NoError(t, report.Write(run, out))
	require.NotContains(t, pageOf(t, out, "fleet.md"), "not measured")
}
