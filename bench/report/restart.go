package report

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// restartExplained describes the figures of a restarted server.
const restartExplained = `Apiserver, etcd or kine (SQLite, as k3s runs it), nodes and the proxy that counts bytes share the CPUs of one machine. The nodes of a way are goroutines
of one process, each with a connection of its own, with TLS. A node caches its own 24 pods, by a field selector, and all
configmaps, services, endpointslices and nodes.

- **` + driver.RestartInformers + `**: client-go's typed informers, with their defaults.
- **` + driver.RestartAgents + `**: source, reflector, checks before a resume, queue and loop of the agent, on a store in memory. A collection
  of 200 objects and more is [listed by versions](../decisions/list-of-versions.md).
- **` + driver.RestartWhole + `**: the same with lists of whole objects, for comparison.
- **The restart**: the nodes follow the apiserver and are stopped (SIGSTOP), the apiserver is killed and started
  again, objects change, and when it is idle all nodes continue at once, with their connections gone: no wait spreads them.
  [Real agents](../scale.md#arriving-one-by-one) spread such lists over half a minute, those with readers first.
- **current**: from then until all nodes have the keys and resourceVersions of the apiserver's objects, and all watches are
  open: looked at once to four times a second.
- **bytes** are payload of TCP, counted by the kernel. **CPU** is until two seconds later. The apiserver's is without
  its load without nodes.
`

// restartFigure returns the spread of one figure of a way.
func restartFigure(st *result.Stage, way string, of func(result.Restart) float64) measure.Spread {
	var values []float64
	for _, r := range st.Restarts {
		if r.Way == way {
			values = append(values, of(r))
		}
	}
	return measure.SpreadOf(values)
}

// Restart returns return.md: nodes that return after a restart of the server.
func Restart(run *result.Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The return after a restart of the server\n\nThis page is written by `%s`. Don't edit it. All figures are of one run:\n[the raw ones](return.json) are beside it.\n\n", run.Command)
	versions(&b, run)
	for i := range run.Stages {
		restartStage(&b, &run.Stages[i])
	}
	b.WriteString("\n## The measurement\n\n" + restartExplained)
	return b.String()
}

func restartStage(b *strings.Builder, st *result.Stage) {
	first := st.Restarts[0]
	fmt.Fprintf(b, "\n## %d nodes, on %s\n\n", first.Nodes, st.Name)
	var counts []string
	for _, name := range driver.RestartResources {
		counts = append(counts, humanize.Comma(int64(st.Resources[name]))+" "+strings.SplitN(name, ".", 2)[0])
	}
	fmt.Fprintf(b, "%s, %d of which change meanwhile. Rounds: %d.\n\n", strings.Join(counts, ", "), first.Changed,
		restartFigure(st, driver.RestartAgents, func(result.Restart) float64 { return 0 }).Count)
	b.WriteString("| | current after | bytes to a node | of client-go's | from a node | requests of a node: lists, gets, watches " +
		"| apiserver's CPU for a node | of client-go's | nodes' CPU |\n" + strings.Repeat("|---", 9) + "|\n")
	bytes := func(r result.Restart) float64 { return float64(r.Wire.Received) / float64(r.Nodes) }
	cpu := func(r result.Restart) float64 { return r.ServerCPU / float64(r.Nodes) }
	theirs := func(of func(result.Restart) float64) float64 {
		return restartFigure(st, driver.RestartInformers, of).Median
	}
	for _, way := range unique(st.Restarts, func(r result.Restart) string { return r.Way }) {
		figure := func(of func(result.Restart) float64) measure.Spread { return restartFigure(st, way, of) }
		each := func(verb string) string {
			return fmt.Sprintf("%.0f", figure(func(r result.Restart) float64 { return float64(r.Requests[verb]) / float64(r.Nodes) }).Median)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s, %s, %s | %s | %s | %s |\n", way,
			withSpread(figure(func(r result.Restart) float64 { return r.Seconds }), seconds), withSpread(figure(bytes), size),
			fraction(figure(bytes).Median/theirs(bytes)),
			size(figure(func(r result.Restart) float64 { return float64(r.Wire.Sent) / float64(r.Nodes) }).Median),
			each("LIST"), each("GET"), each("WATCH"), withSpread(figure(cpu), seconds), fraction(figure(cpu).Median/theirs(cpu)),
			seconds(figure(func(r result.Restart) float64 { return r.CPU }).Median))
	}
	whole := func(of func(result.Restart) float64) float64 {
		return restartFigure(st, driver.RestartWhole, of).Median
	}
	ours := func(of func(result.Restart) float64) float64 {
		return restartFigure(st, driver.RestartAgents, of).Median
	}
	fmt.Fprintf(b, "\nBeside whole lists, the agents receive %s of the bytes and take %s of the apiserver's CPU time.\n",
		fraction(ours(bytes)/whole(bytes)), fraction(ours(cpu)/whole(cpu)))
}
