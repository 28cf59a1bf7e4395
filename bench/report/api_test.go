package report

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/result"
)

// apiExample is a run whose figures reach each target exactly.
func apiExample() *result.Run {
	add := func(st *result.Stage, what, unit string, values map[string]float64) {
		for _, of := range []string{driver.Agent, driver.Server, driver.FarServer} {
			if x, ok := values[of]; ok {
				most := 50 * x
				if strings.HasSuffix(what, "a delivery") {
					most = 2 * x // as much as can be judged
				}
				st.API = append(st.API, result.Figure{What: what, Of: of, Unit: unit, Values: []float64{x, x, most}})
			}
		}
	}
	st := result.Stage{Name: medium, Objects: 20_000}
	add(&st, "list, JSON: CPU", "s", map[string]float64{driver.Agent: 1, driver.Server: 4})
	add(&st, "list, JSON: first byte", "s", map[string]float64{driver.Agent: 0.01, driver.Server: 1})
	add(&st, "list, JSON: memory grows by", "B", map[string]float64{driver.Agent: 16 << 20, driver.Server: 1 << 30})
	add(&st, "an informer's start", "s", map[string]float64{driver.Agent: 1, driver.FarServer: 3})
	for _, what := range driver.Gets() {
		add(&st, what+": CPU", "s", map[string]float64{driver.Agent: 100e-6})
		add(&st, what+": CPU above net/http's", "s", map[string]float64{driver.Agent: 100e-6})
	}
	add(&st, "a watch that waits: memory", "B", map[string]float64{driver.Agent: 40 << 10})
	for _, name := range []string{driver.FewWatches, driver.AllWatches} {
		add(&st, name+": CPU for a delivery", "s", map[string]float64{driver.Agent: 20e-6, driver.Server: 20e-6})
		for _, f := range []result.Figure{
			{What: name + driver.Watches, Values: []float64{1000}},
			{What: name + driver.Changes, Values: []float64{99.6}},
			{What: name + driver.Reached, Values: []float64{10}},
		} {
			f.Of = driver.EachServer
			st.API = append(st.API, f)
		}
		add(&st, name+": to the last one, p99", "s", map[string]float64{driver.Agent: 0.15, driver.Server: 0.1})
	}
	return &result.Run{Command: "make bench-api", Stages: []result.Stage{st}}
}

func TestAPITargets(t *testing.T) {
	st := apiStage(apiExample())
	require.Len(t, apiTargets(st), 19)
	for i, target := range apiTargets(st) {
		require.Equal(t, "reached", judge(target).text, target.what)
		worse := apiStage(apiExample())
		for _, f := range worse.API {
			if f.What == target.what && f.Of == driver.Agent {
				f.Values[0], f.Values[1] = 1.02*f.Values[0], 1.02*f.Values[1]
			}
		}
		require.Equal(t, "**not reached**", judge(apiTargets(worse)[i]).text, target.what)
	}
	for _, values := range [][]float64{{-1e-6, 20e-6, -1e-6}, {20e-6, 20e-6, 40.1e-6}, {-1e-6, 20e-6, 20e-6}} {
		noisy := apiStage(apiExample())
		for i := range noisy.API {
			if f := &noisy.API[i]; f.What == driver.FewWatches+": CPU for a delivery" && f.Of == driver.Server {
				f.Values = values
			}
		}
		for _, target := range apiTargets(noisy) {
			want := "reached"
			if target.what == driver.FewWatches+": CPU for a delivery" {
				want = "too noisy to judge"
			}
			require.Equal(t, want, judge(target).text, target.what)
		}
	}
	st.API = st.API[1:]
	require.Equal(t, "not measured", judge(apiTargets(st)[0]).text)
}

func TestAPIPage(t *testing.T) {
	dir, page := written(t, apiExample(), "api.md")
	require.Contains(t, page, "| list, JSON: CPU | 1.0 s (1.0 s to 50.0 s) | "+
		"kube-apiserver 4.0 s (4.0 s to 200.0 s) | at most 0.25x | 0.25x | reached |")
	require.Contains(t, page, "- **watches of a namespace**: 1,000, and 100 changes a second, each of which reaches 10 of them.\n")
	require.Contains(t, page, "| get, most recent: CPU | agent | 100 µs (100 µs to 5.0 ms) |")
	require.False(t, strings.Contains(page, "agent before"), "no earlier program was compared")
	requireTables(t, page)
	compared := apiExample()
	what := "without clients: CPU of a first sync"
	for _, of := range []string{driver.AgentNoAPI, driver.AgentAPI, driver.AgentBefore} {
		compared.Stages[0].API = append(compared.Stages[0].API, result.Figure{What: what, Of: of, Unit: "s", Values: []float64{1}})
	}
	with := API(compared, &compared.Stages[0])
	require.Contains(t, with, "- **agent before** is that of the revision BEFORE in the command.\n")
	require.Contains(t, with, "| "+what+" (agent, API on) | 1.0 s | agent before 1.0 s | at most 1.05x | 1.00x | reached |")
	var run result.Run
	require.NoError(t, result.Read(filepath.Join(dir, "api.json"), &run))
	require.Equal(t, apiExample().Stages, run.Stages)
}
