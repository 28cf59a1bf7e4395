package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// apiExplained describes the figures of the Kubernetes API.
const apiExplained = `Both servers are on one machine with their clients, and have TLS and HTTP/2 without compression. The
agent caches all pods without managedFields, as it does by default; the kube-apiserver's objects have them.

- **CPU** is that of the server's process. From the kube-apiserver's, what it takes with no client is taken off.
- **list**: all pods with resourceVersion=0, so from both servers' memory or disk and not from etcd. Its memory is the
  highest growth of the process's own resident memory.
- **gets**: single pods with resourceVersion=0, one after another and 16 at once, and most recent ones. Those on the socket
  are HTTP/1.1 on the agent's unix socket, 16 at once on as many connections.
  net/http alone is a server with the agent's settings of TLS and HTTP/2, or on a socket, and of the garbage collector,
  whose handler only writes a pod from memory.
- **an informer's start**: client-go's typed informer with its defaults, from its start until it has synced.
- **watches**: from the moment at which a change is written to etcd until the last of the watches that select the object
  has its event. The kube-apiserver makes no change itself, which would take far more CPU than its deliveries. From the CPU,
  what the server takes for the same changes without these watches is taken off, round by round: the servers take turns, and
  each works without watches while the other one has them. The kube-apiserver collects its garbage before each of them, else
  that would be part of one figure and not of the next.
- **without clients**: agents with and without the Kubernetes API, each without stored data.
`

// apiStage returns the stage with figures of the Kubernetes API, or nil.
func apiStage(run *result.Run) *result.Stage {
	for i := range run.Stages {
		if len(run.Stages[i].API) > 0 {
			return &run.Stages[i]
		}
	}
	return nil
}

// API returns api.md: the Kubernetes API of an agent beside the kube-apiserver's.
func API(run *result.Run, st *result.Stage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The Kubernetes API beside a kube-apiserver's\n\nThis page is written by `%s`. Don't edit it. All figures are of one run:\n[what was measured](api.json) is beside it.\n\n", run.Command)
	versions(&b, run)
	fmt.Fprintf(&b, "\n## Targets\n\nAt %s pods. Medians.\n\n| | agent | beside | wanted | measured | |\n|---|---|---|---|---|---|\n", humanize.Comma(int64(st.Objects)))
	for _, t := range apiTargets(st) {
		v := judge(t)
		got := "-"
		if !math.IsNaN(v.got) {
			got = fmt.Sprintf("%.2fx", v.got)
		}
		fmt.Fprintf(&b, "| %s | %s | %s %s | at most %.2fx | %s | %s |\n", t.what, withSpread(t.ours.at, t.ours.text),
			t.theirs.of, withSpread(t.theirs.at, t.theirs.text), t.ratio, got, v.text)
	}
	b.WriteString("\n## What is measured\n\n" + apiExplained)
	if figureOf(st, "without clients: CPU of a first sync", driver.AgentBefore).at.Count > 0 {
		fmt.Fprintf(&b, "- **%s** is that of the revision BEFORE in the command.\n", driver.AgentBefore)
	}
	for _, name := range []string{driver.FewWatches, driver.AllWatches} {
		n := func(what string) string { return number(figureOf(st, name+what, driver.EachServer).at.Median) }
		fmt.Fprintf(&b, "- **%s**: %s, and %s changes a second, each of which reaches %s of them.\n", name, n(driver.Watches), n(driver.Changes), n(driver.Reached))
	}
	b.WriteString("\n## Figures\n\n| | of | |\n|---|---|---|\n")
	for _, f := range st.API {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.What, f.Of, withSpread(measure.SpreadOf(f.Values), textOf(f.Unit)))
	}
	return b.String()
}

// figureOf returns a figure of a server.
func figureOf(st *result.Stage, what, server string) figure {
	for _, f := range st.API {
		if f.What == what && f.Of == server {
			return figure{server, measure.SpreadOf(f.Values), textOf(f.Unit)}
		}
	}
	return figure{of: server, text: size}
}

// apiTargets returns the targets of the Kubernetes API.
func apiTargets(st *result.Stage) []target {
	of := func(what, server string) figure { return figureOf(st, what, server) }
	versus := func(what, ours, theirs string, ratio float64) target {
		return target{what: what, ours: of(what, ours), theirs: of(what, theirs), ratio: ratio, atMost: true}
	}
	limit := func(what string, n float64) target {
		ours := of(what, driver.Agent)
		return target{what: what, ours: ours, theirs: figure{"limit", measure.SpreadOf([]float64{n}), ours.text}, ratio: 1, atMost: true}
	}
	all := []target{
		versus("list, JSON: CPU", driver.Agent, driver.Server, 0.25),
		limit("list, JSON: first byte", 0.01),
		limit("list, JSON: memory grows by", 16<<20),
		versus("an informer's start", driver.Agent, driver.FarServer, 1.0/3),
	}
	for _, what := range driver.Gets() {
		whole := limit(what+": CPU", 100e-6)
		if floor := of(what+": CPU", driver.Floor); floor.at.Median > 100e-6 {
			whole.why = "net/http alone takes " + floor.text(floor.at.Median)
		}
		all = append(all, whole, limit(what+": CPU above net/http's", 100e-6))
	}
	all = append(all, limit("a watch that waits: memory", 40<<10))
	for _, name := range []string{driver.FewWatches, driver.AllWatches} {
		cpu := versus(name+": CPU for a delivery", driver.Agent, driver.Server, 1)
		cpu.difference = true
		all = append(all, cpu, versus(name+": to the last one, p99", driver.Agent, driver.Server, 1.5))
	}
	for _, what := range []string{"CPU of a first sync", "memory after a first sync", "CPU of changes", "memory after changes"} {
		what = "without clients: " + what
		for _, ours := range []string{driver.AgentNoAPI, driver.AgentAPI} {
			t := versus(what, ours, driver.AgentBefore, 1.05)
			t.what += " (" + ours + ")"
			if t.theirs.at.Count > 0 { // only compared if there is an earlier program
				all = append(all, t)
			}
		}
	}
	return all
}

func textOf(unit string) func(float64) string {
	switch unit {
	case "B":
		return size
	case "":
		return number
	}
	return func(s float64) string {
		if math.Abs(s) < 0.00095 {
			return fmt.Sprintf("%.0f µs", 1e6*s)
		}
		return seconds(s)
	}
}
