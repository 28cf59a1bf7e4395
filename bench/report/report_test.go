package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// example is a run with a figure for each target: client-go's are all 100, ours are 1. If there are
// three rounds, the third is an outlier, which a median ignores.
func example() *result.Run {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	cost := func(x float64) result.Cost {
		return result.Cost{
			ReadSeconds: x, CaughtUpSeconds: x, CaughtUpCPU: x, SettledCPU: x, ServerCPU: x,
			Traffic: measure.Traffic{Received: int64(20 * x * x)},
			Memory:  measure.Memory{Peak: int64(1e6 * x), Anon: int64(9e5 * x), File: int64(1e5 * x)}, DiskBytes: 10_000_000,
		}
	}
	run := &result.Run{Command: "make bench", Started: at, Ended: at.Add(14 * time.Minute), Versions: map[string]string{"snapcache": "abc"}}
	for _, s := range []struct {
		name    string
		objects int
	}{{small, 1_000}, {medium, 20_000}, {large, 100_000}} {
		st := result.Stage{Name: s.name, Objects: s.objects, JSONBytes: 100_000_000, Resources: map[string]int{"pods": s.objects}}
		for _, scenario := range []string{driver.First, driver.Restart0, driver.Restart1, driver.Handled} {
			for round, off := range []float64{1, 1, 50} {
				st.Turns = append(st.Turns,
					result.Turn{Scenario: scenario, Peer: driver.Agent, Round: round, Cost: cost(off)},
					result.Turn{Scenario: scenario, Peer: driver.LibraryBolt, Round: round, Cost: cost(off)},
					result.Turn{Scenario: scenario, Peer: driver.Typed, Round: round, Cost: cost(100 * off)},
					result.Turn{Scenario: scenario, Peer: driver.Dynamic, Round: round, Cost: cost(200 * off)})
			}
		}
		st.Streams = []result.Stream{
			{Peer: driver.LibraryBolt, Rate: 100, Changes: 1000, Seconds: 10, CPU: 0.3, Handled: result.Delay{Count: 1000, P50: 0.01, P99: 0.02}, Durable: result.Delay{Count: 1000, P50: 1, P99: 2}},
			{Peer: driver.Typed, Rate: 100, Changes: 1000, Seconds: 10, CPU: 0.3, Handled: result.Delay{Count: 1000, P50: 0.01, P99: 0.02}},
		}
		st.Fleets = []result.Fleet{
			{Scenario: driver.Restart0, Peer: "fleet-library", Nodes: 10, Requests: map[string]int{"WATCH": 20}, Cost: cost(10)},
			{Scenario: driver.Restart0, Peer: "fleet-typed", Nodes: 10, Requests: map[string]int{"WATCH": 20}, Cost: cost(100)},
			{Scenario: driver.Restart0, Peer: "fleet-library", Nodes: 5, Requests: map[string]int{"WATCH": 10}, Cost: cost(5)},
			{Scenario: driver.Restart0, Peer: "fleet-typed", Nodes: 5, Requests: map[string]int{"WATCH": 10}, Cost: cost(40)},
		}
		run.Stages = append(run.Stages, st)
	}
	return run
}

func TestTargets(t *testing.T) {
	all := targets(example())
	require.Len(t, all, 22)
	for _, target := range all {
		require.Equal(t, "reached", judge(target).text, target.what)
	}
	// If a figure becomes worse, its target shows it.
	for _, c := range []struct {
		name  string
		worse func(c *result.Cost)
	}{
		{"first correct read", func(c *result.Cost) { c.ReadSeconds = 3 }},
		{"caught up", func(c *result.Cost) { c.CaughtUpSeconds = 6 }},
		{"bytes from", func(c *result.Cost) { c.Received = 250 }},
		{"apiserver's CPU", func(c *result.Cost) { c.ServerCPU = 6 }},
		{"peak memory", func(c *result.Cost) { c.Peak = 13e6 }},
		{"settled memory", func(c *result.Cost) { c.File = 13e6 }},
		{"CPU on the first sync", func(c *result.Cost) { c.SettledCPU = 101 }},
		{"size on disk", func(c *result.Cost) { c.DiskBytes = 15_000_001 }},
	} {
		run := example()
		for i := range stage(run, medium).Turns {
			if turn := &stage(run, medium).Turns[i]; turn.Peer == driver.Agent {
				c.worse(&turn.Cost)
			}
		}
		missed := 0
		for _, target := range targets(run) {
			if strings.Contains(target.what, c.name) && judge(target).text == "**not reached**" {
				missed++
			}
		}
		require.Positive(t, missed, c.name)
	}
	run := example()
	stage(run, medium).Streams[0].Handled.P99 = 0.025
	stage(run, medium).Streams[0].CPU = 0.5
	last := targets(run)[20:]
	for _, missed := range last {
		require.NotEmpty(t, missed.why, missed.what)
		require.Equal(t, "**not reached**: "+missed.why, judge(missed).text)
	}
	require.Equal(t, "not measured", judge(targets(&result.Run{})[0]).text)
}

// A figure below zero, as an idle server may cause, does not give an infinite ratio.
func TestTargetsNegativeFigure(t *testing.T) {
	run := example()
	for i := range stage(run, medium).Turns {
		if turn := &stage(run, medium).Turns[i]; turn.Peer == driver.Agent {
			turn.ServerCPU = -0.002
		}
	}
	for _, target := range targets(run) {
		if target.floor == 0 {
			continue
		}
		v := judge(target)
		require.InDelta(t, 100/noise, v.got, 1)
		require.Contains(t, v.text, "ours can't be distinguished from an idle server's")
		return
	}
	t.Fatal("no target has a floor")
}

// written writes a run that has a page of its own to a directory, and returns both.
func written(t *testing.T, run *result.Run, name string) (dir, page string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, Write(run, dir))
	require.NoFileExists(t, filepath.Join(dir, "side-by-side.md"))
	b, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	page = string(b)
	require.NotContains(t, page, "NaN")
	require.NotContains(t, page, "%!")
	return dir, page
}

func TestMarkdown(t *testing.T) {
	page := Markdown(example(), []string{"side-by-side/bytes.svg"})
	require.NotContains(t, page, "NaN")
	require.NotContains(t, page, "%!")
	require.Contains(t, page, "| caught up after a restart with 1 % changed | agent 1.0 s (1.0 s to 50.0 s) | typed 100.0 s (100.0 s to 5000.0 s) | 20x less | 100x | reached |")
	require.Contains(t, page, "![bytes](side-by-side/bytes.svg)")
	require.Contains(t, page, "| restart-0 | agent | 0.00 |", "the exponent of a constant cost")
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "|---") {
			require.NotContains(t, line, "||")
		}
	}
	requireTables(t, page)
}

// requireTables checks that each row of a table has as many cells as its header.
func requireTables(t *testing.T, page string) {
	t.Helper()
	cells := 0
	for _, line := range strings.Split(page, "\n") {
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		if n := strings.Count(line, "|"); cells == 0 {
			cells = n
		} else {
			require.Equal(t, cells, n, line)
		}
	}
}

// Ten times the nodes cost ten times as much.
func TestModel(t *testing.T) {
	st := stage(example(), medium)
	p := predict(st, 10, "fleet-typed", 1_000)
	require.InDelta(t, 1_000*20*100*100/10, p.bytes, 1)
	require.InDelta(t, 1_000*100/10, p.cpu, 1)
	require.InDelta(t, 10_000/modelCPUs, p.seconds, 1)
	require.InDelta(t, 10*p.cpu, predict(st, 10, "fleet-typed", 10_000).cpu, 1)
	require.InDelta(t, 80, predict(st, 5, "fleet-typed", 10).cpu, 0.1, "the prediction from the smaller fleet")
	st.Fleets[1].Received = 1e12
	require.InDelta(t, 1_000*1e12/10/modelLink, predict(st, 10, "fleet-typed", 1_000).seconds, 1, "the link takes longer")
}

func TestCharts(t *testing.T) {
	charts, err := Charts(example())
	require.NoError(t, err)
	require.Len(t, charts, 4)
	for _, c := range charts {
		d := xml.NewDecoder(strings.NewReader(string(c.SVG)))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, c.Name)
		}
		require.Contains(t, string(c.SVG), "agent", c.Name)
		require.Contains(t, string(c.SVG), "typed", c.Name)
	}
}

func TestFormatFigures(t *testing.T) {
	require.Equal(t, "0.4 ms", seconds(0.0004))
	require.Equal(t, "42 ms", seconds(0.042))
	require.Equal(t, "2.5 s", seconds(2.5))
	require.Equal(t, "-3.0 ms", seconds(-0.003))
	require.Equal(t, "12 kB", size(12_345))
	require.Equal(t, "1,235x", times(1234.6))
	require.Equal(t, "3.0 h", duration(3*3600))
}

func TestFleets(t *testing.T) {
	page := Fleets(example())
	require.NotContains(t, page, "NaN")
	require.NotContains(t, page, "%!")
	for _, row := range []string{"`make bench`", "| 10 | restart-0 | fleet-typed | ", "| 100,000 | fleet-typed | ", "what it says of 10 nodes by those of 5"} {
		require.Contains(t, page, row)
	}
	requireTables(t, page)

	none := example()
	for i := range none.Stages {
		none.Stages[i].Fleets = nil
	}
	require.NotContains(t, Fleets(none), "|", "a run without fleets has no tables")
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "docs", "bench")
	for range 2 { // the second time the files exist
		require.NoError(t, Write(example(), dir))
		page, err := os.ReadFile(filepath.Join(dir, "side-by-side.md"))
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(string(page), "| peak memory on the first sync | agent "))
		require.Contains(t, string(page), "| command | `make bench` |")
		fleets, err := os.ReadFile(filepath.Join(dir, "fleets.md"))
		require.NoError(t, err)
		require.Equal(t, Fleets(example()), string(fleets))
		var run result.Run
		require.NoError(t, result.Read(filepath.Join(dir, "side-by-side.json"), &run))
		require.Equal(t, example().Stages, run.Stages)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 4, "two pages, the figures, and the charts' directory")
}

// The pages link to each other, to their charts and to pages in docs.
func TestLinks(t *testing.T) {
	docs, err := filepath.Abs("../../docs")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, Write(example(), dir))
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	for _, name := range []string{"side-by-side.md", "fleets.md"} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		links := link.FindAllStringSubmatch(string(page), -1)
		require.NotEmpty(t, links, name)
		for _, m := range links {
			if other, above := strings.CutPrefix(m[1], "../"); above {
				require.FileExists(t, filepath.Join(docs, other), "%s: %s", name, m[1])
			} else {
				require.FileExists(t, filepath.Join(dir, m[1]), "%s: %s", name, m[1])
			}
		}
	}
}
