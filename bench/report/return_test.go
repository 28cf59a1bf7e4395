package report

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// returnExample is a run whose figures reach each target exactly.
func returnExample() *result.Run {
	of := func(way string, nodes int, bytes int64, cpu, step float64, hubs ...result.Hub) result.Return {
		n := int64(nodes)
		return result.Return{
			Way: way, Nodes: nodes, Changed: 400, Wire: measure.Traffic{Received: n * bytes, Sent: n, Connections: nodes}, Hubs: hubs,
			Requests: map[string]int{"tokenreviews": nodes, "subjectaccessreviews": 6 * nodes},
			Cost:     result.Cost{ServerCPU: float64(nodes) * cpu, CaughtUpSeconds: step, SettledCPU: 1},
		}
	}
	hub := result.Hub{Nodes: 50, CPU: 2, After: measure.Memory{Peak: 150<<20 + 50*40<<10, Anon: 50 << 20}}
	return &result.Run{Command: "make bench-fleet", Stages: []result.Stage{{Name: medium, Objects: 20_000, Returns: []result.Return{
		of(driver.Informers, 10, 100_000_000, 5, 20),
		of(driver.AgentsDirect, 10, 30_000_000, 6, 20),
		of(driver.AgentsSharing, 100, 1_000_000, 0.01, 20, hub, hub),
		of(driver.AgentsOnHubs, 100, 1_000_000, 0.01, 20, hub, hub),
	}}}}
}

func TestReturnTargets(t *testing.T) {
	st := &returnExample().Stages[0]
	require.Len(t, returnTargets(st, driver.AgentsOnHubs), 5)
	for i, worsen := range []func(r *result.Return){
		func(r *result.Return) { r.ServerCPU *= 1.02 },
		func(r *result.Return) { r.Wire.Received += r.Wire.Received / 50 },
		func(r *result.Return) { r.Hubs[1].After.Peak++ },
		func(r *result.Return) { r.CaughtUpSeconds *= 1.02 },
		func(r *result.Return) { r.CaughtUpSeconds *= 1.02 },
	} {
		target := returnTargets(st, driver.AgentsOnHubs)[i]
		require.Equal(t, "reached", judge(target).text, target.what)
		worse := returnExample().Stages[0]
		worsen(&worse.Returns[3])
		require.Equal(t, "**not reached**", judge(returnTargets(&worse, driver.AgentsOnHubs)[i]).text, target.what)
		require.Equal(t, "reached", judge(returnTargets(&worse, driver.AgentsSharing)[i]).text, "of the other way")
	}
	st.Returns = st.Returns[1:]
	require.Equal(t, "not measured", judge(returnTargets(st, driver.AgentsOnHubs)[0]).text)
}

func TestReturnPage(t *testing.T) {
	dir, page := written(t, returnExample(), "fleet.md")
	require.Contains(t, page, "| apiserver's CPU for a node | an account each: 10 ms | client-go on the apiserver 5.0 s | at most 1/500 | 1/500 | reached |")
	require.Contains(t, page, "only 10 nodes do, 10.0 times fewer")
	require.Contains(t, page, "| 100,000 | agents on hubs, an account each | 98 | 100 GB | 17 min | 40.8 s | 1.1 GB | 2 min |")
	require.Contains(t, page, "- **client-go on the apiserver**: at 96 nodes, by 8 CPUs of the apiserver, in a minute.")
	require.Contains(t, page, "- **agents on hubs, an account each**: at 1,024 nodes, by 1.1 GB of one hub's memory.")
	require.Contains(t, page, "7.0 reviews of the token")
	requireTables(t, page)
	var run result.Run
	require.NoError(t, result.Read(filepath.Join(dir, "fleet.json"), &run))
	require.Equal(t, returnExample().Stages, run.Stages)
}
