package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// explained describes the peers and scenarios.
const explained = alike + `
| peer | |
|---|---|
| agent | ` + "`snapcache run`" + `, read through its socket. It drops managedFields, as it does by default |
| library-bolt | snapcache's factory of informers with the Go type, on the durable store. managedFields are kept |
| library-memory | the same without a durable store |
| typed | client-go's factory of informers as it is: protobuf, and lists by watch |
| typed-trimmed | the same with a transform that drops managedFields |
| typed-json | the same with ` + "`ContentType: application/json`" + ` |
| dynamic | client-go's factory of dynamic informers |
| metadata | client-go's factory of metadata informers: objects without spec and status |
| controller-runtime | its cache with its defaults |

` + scenarios + `- The agent's random wait before the first request (` + "`resumeJitter`" + `) is off, and client-go's limit of requests too.
`

// alike and scenarios are of all peers.
const (
	alike = `Each peer is a process of its own, started again for each figure. All go through one network, which
counts bytes of TCP's payload: with TLS, and with gzip if a peer asks for it.
`
	scenarios = `- **first correct read**: from the start of the process to the first answer that has an object as the
  server has it. It is an object that did not change.
- **caught up**: from the start of the process until the cache holds the last change that was made at
  the server before, and has synced. After the measurement keys and resourceVersions of all objects
  are compared with the server's.
- **restart-0**: nothing but this last object has changed since the peer ended; **restart-1** and
  **restart-10**: 1 % and 10 % of the objects have. To a cache without a store all of these are a first
  sync. **restart-handler**: 1 %, and a handler receives each object, and puts its key on a work queue. **expired**: 1 %, and the
  server remembers nothing of before (410).
- **CPU** of the client is until the end of the measurement. From the apiserver's, what it takes with
  no client connected is taken off; about nothing may come out below nothing.
- The apiserver collects its garbage before each start, else that would be part of some figures and not
  of others: it takes as long as a restart of the agent.
- **settled**: resident memory at the end of the measurement, the process's own and the pages of files, which
  the kernel may take back. Its own are heap, stacks and page tables. **peak, own** is their highest value, looked at every
  10 ms; peak memory has the pages of files too.
`
)

// Markdown returns side-by-side.md. charts are the file names of its pictures.
func Markdown(run *result.Run, charts []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Side by side\n\nThis page is written by `%s`. Don't edit it. All figures are of one run:\n[what was measured](side-by-side.json) is beside it.\n\n", run.Command)
	versions(&b, run)
	b.WriteString("\n## Targets\n\n")
	targetTable(&b, run)
	b.WriteString("\n## What is measured\n\n" + explained)
	pictures(&b, charts)
	for i := range run.Stages {
		stageSection(&b, &run.Stages[i])
	}
	growth(&b, run)
	if st := fleetStage(run); st != nil {
		b.WriteString("\n## Fleets that restart at once\n\n[The model](../scale.md#the-model).\n")
		model(&b, st)
	}
	return b.String()
}

// Fleets returns fleets.md: the cost of the measured fleets and of larger ones.
func Fleets(run *result.Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Fleets\n\nThis page is written by `%s`. Don't edit it. [Scale](../scale.md) explains the figures.\n", run.Command)
	if st := fleetStage(run); st != nil {
		b.WriteString("\n## Measured\n")
		fleetTable(&b, st)
		b.WriteString("\n## Larger fleets\n")
		model(&b, st)
	}
	fmt.Fprintf(&b, "\nOf one run on one machine, %s: [side by side](side-by-side.md).\n", run.Started.UTC().Format("2006-01-02"))
	return b.String()
}

func pictures(b *strings.Builder, charts []string) {
	for _, chart := range charts {
		fmt.Fprintf(b, "\n![%s](%s)\n", strings.TrimSuffix(chart[strings.LastIndex(chart, "/")+1:], ".svg"), chart)
	}
}

// versions describes the subject, time and machine of a run.
func versions(b *strings.Builder, run *result.Run) {
	m := run.Machine
	b.WriteString("| | of this run |\n|---|---|\n")
	fmt.Fprintf(b, "| command | `%s` |\n| when | %s, %.0f minutes |\n", run.Command, run.Started.UTC().Format("2006-01-02 15:04 MST"), run.Ended.Sub(run.Started).Minutes())
	fmt.Fprintf(b, "| machine | %d CPUs, %s; %s of memory; Linux %s, %s, %s |\n", m.CPUs, m.Model, humanize.IBytes(uint64(m.MemoryBytes)), m.Kernel, m.Platform, m.Go)
	if run.Note != "" {
		fmt.Fprintf(b, "| note | %s |\n", run.Note)
	}
	for _, name := range slices.Sorted(maps.Keys(run.Versions)) {
		fmt.Fprintf(b, "| %s | %s |\n", name, run.Versions[name])
	}
}

func targetTable(b *strings.Builder, run *result.Run) {
	b.WriteString("For the agent at 20,000 pods where nothing else is said. Medians of one run on one machine.\n\n")
	b.WriteString("| | ours | beside | wanted | measured | |\n|---|---|---|---|---|---|\n")
	for _, t := range targets(run) {
		v := judge(t)
		wanted, got := fmt.Sprintf("%s less", times(t.ratio)), times(v.got)
		if t.atMost {
			wanted, got = fmt.Sprintf("at most %.2fx", t.ratio), fmt.Sprintf("%.2fx", v.got)
		} else if t.ratio == 1 {
			wanted = "not more"
		}
		if t.ours.at.Count == 0 || t.theirs.at.Count == 0 {
			got = "-"
		}
		fmt.Fprintf(b, "| %s | %s %s | %s %s | %s | %s | %s |\n", t.what, t.ours.of, withSpread(t.ours.at, t.ours.text),
			t.theirs.of, withSpread(t.theirs.at, t.theirs.text), wanted, got, v.text)
	}
}

func stageSection(b *strings.Builder, st *result.Stage) {
	fmt.Fprintf(b, "\n## %s\n\n%s objects, %s of JSON as the server sends them:", st.Name, humanize.Comma(int64(st.Objects)), size(float64(st.JSONBytes)))
	for i, name := range slices.Sorted(maps.Keys(st.Resources)) {
		sep := ","
		if i == 0 {
			sep = ""
		}
		fmt.Fprintf(b, "%s %s %s", sep, humanize.Comma(int64(st.Resources[name])), name)
	}
	b.WriteString(". Medians, and from where to where the rounds go.\n")
	for _, scenario := range unique(st.Turns, func(t result.Turn) string { return t.Scenario }) {
		columns := slices.Clone(costs)
		for _, m := range laterCosts { // which older figures lack
			if slices.ContainsFunc(st.Turns, func(t result.Turn) bool { return t.Scenario == scenario && m.of(t.Cost) > 0 }) {
				columns = append(columns, m)
			}
		}
		fmt.Fprintf(b, "\n### %s\n\n| |", scenario)
		for _, m := range columns {
			b.WriteString(" " + m.name + " |")
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
		for _, peer := range unique(st.Turns, func(t result.Turn) string { return t.Peer }) {
			if spread(st, scenario, peer, readTime).Count == 0 {
				continue
			}
			b.WriteString("| " + peer + " |")
			for _, m := range columns {
				b.WriteString(" " + withSpread(spread(st, scenario, peer, m), m.text) + " |")
			}
			b.WriteString("\n")
		}
	}
	streamTable(b, st)
	if len(st.Fleets) > 0 {
		b.WriteString("\n### Fleets\n")
		fleetTable(b, st)
	}
}

func streamTable(b *strings.Builder, st *result.Stage) {
	if len(st.Streams) == 0 {
		return
	}
	b.WriteString("\n### Changes at a rate\n\nFrom the moment at which a change is sent to the server, so the server's own time is in it, until a handler\n" +
		"is called (of the agent: until it comes from `changes --follow`), and until a commit has made it durable, to\n" +
		"some 20 ms. What is written does not have the end of the process in it, nor a fold of the journal where none\n" +
		"fell into this time: see [performance.md](../performance.md#bytes-written) for the long run.\n\n" +
		"| changes a second | peer | changes | handled, median | p99 | durable, median | p99 | written for a change | CPU for a change | Go's garbage collector, of the CPU | peak, own |\n" + strings.Repeat("|---", 11) + "|\n")
	type key struct {
		rate   float64
		peer   string
		beside int
		busy   bool
	}
	keyOf := func(s result.Stream) key { return key{s.Rate, s.Peer, s.Beside, s.Busy} }
	keys := unique(st.Streams, keyOf)
	slices.SortStableFunc(keys, func(x, y key) int { return cmp.Compare(x.rate, y.rate) })
	for _, k := range keys {
		of := func(value func(result.Stream) float64) measure.Spread {
			var values []float64
			for _, s := range st.Streams {
				if keyOf(s) == k {
					values = append(values, value(s))
				}
			}
			return measure.SpreadOf(values)
		}
		peer := k.peer
		if k.beside > 0 {
			peer += ", not alone"
		}
		if k.busy {
			peer += ", beside busy loops"
		}
		row := []string{fmt.Sprint(k.rate), peer, fmt.Sprintf("%.0f", of(func(s result.Stream) float64 { return float64(s.Changes) }).Median)}
		for _, f := range []func(result.Stream) float64{
			func(s result.Stream) float64 { return s.Handled.P50 }, changeP99,
		} {
			row = append(row, withSpread(of(f), seconds))
		}
		// If not all changes were durable at the end, only the quick ones were.
		if of(func(s result.Stream) float64 { return float64(s.Durable.Count - s.Changes) }).Low >= 0 {
			row = append(row, withSpread(of(func(s result.Stream) float64 { return s.Durable.P50 }), seconds),
				withSpread(of(func(s result.Stream) float64 { return s.Durable.P99 }), seconds))
		} else {
			row = append(row, "-", "-")
		}
		row = append(row, withSpread(of(func(s result.Stream) float64 { return float64(s.WrittenBytes) / float64(s.Changes) }), size),
			withSpread(of(changeCPU), seconds),
			withSpread(of(func(s result.Stream) float64 { return s.Collector }), percent),
			withSpread(of(func(s result.Stream) float64 { return float64(s.PeakOwn) }), size))
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
}

// growth writes the exponents of the cost of a start.
func growth(b *strings.Builder, run *result.Run) {
	var rows strings.Builder
	metrics := []metric{readTime, caughtUpTime, received, clientCPU, serverCPU, peakMemory, settledAll, onDisk}
	for _, scenario := range []string{driver.First, driver.Restart0} {
		for _, peer := range peersOf(run) {
			var row strings.Builder
			measured := false
			for _, m := range metrics {
				points := map[float64]float64{}
				for _, name := range []string{small, medium, large} {
					if s := spread(stage(run, name), scenario, peer, m); s.Count > 0 && s.Median > 0 {
						points[float64(stage(run, name).Objects)] = s.Median
					}
				}
				if len(points) < 2 {
					row.WriteString(" - |")
					continue
				}
				measured = true
				fmt.Fprintf(&row, " %.2f |", measure.Exponent(points))
			}
			if measured {
				fmt.Fprintf(&rows, "| %s | %s |%s\n", scenario, peer, row.String())
			}
		}
	}
	if rows.Len() == 0 {
		return
	}
	b.WriteString("\n## As the number of objects grows\n\nThe exponent k of cost = c · objectsᵏ, fitted to the medians of the stages with pods: 0 is a cost that does\nnot depend on the number of objects, 1 one in proportion.\n\n| | |")
	for _, m := range metrics {
		b.WriteString(" " + m.name + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(metrics)) + "\n" + rows.String())
}

func peersOf(run *result.Run) (peers []string) {
	for _, st := range run.Stages {
		peers = append(peers, unique(st.Turns, func(t result.Turn) string { return t.Peer })...)
	}
	return unique(peers, func(p string) string { return p })
}
