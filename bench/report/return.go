package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// returnExplained describes the figures of a fleet that comes back.
const returnExplained = `Apiserver, etcd, hubs, nodes and the proxies that count bytes share the CPUs of one machine. The nodes of a way
are goroutines of one process, all started at once, without the wait of ` + "`resumeJitter`" + `. Each has a connection of its own, with TLS,
and a store of its own, which keeps less than on a real node: a thousand of those don't
fit in one machine's memory. What they ask for and receive is not reduced.

- **` + driver.Informers + `**: client-go's typed informers of all pods, with their defaults. A transform leaves key, UID and
  resourceVersion. They start without objects, as an informer does after a 410.
- **` + driver.AgentsDirect + `**: source and reflector of the agent, with the checks before a resume, from a stored checkpoint. In
  place of the database there is a map of keys, UIDs and resourceVersions; those of the checkpoint are shared by
  all nodes until they change. The apiserver answers 410, so that they list.
- **agents on hubs**: the same agents and the same checkpoint, with a service account each, or with one for all, as the pods of a
  DaemonSet have one. Each has a token of its own. Hubs have the [limits](../kubernetes-api.md#limits) of the manifests' memory, 1Gi. They are ` + "`snapcache run`" + ` with ` + "`kubernetesAPI.access`" + `, and cache
  what [a hub has to](../fleet.md#what-it-has-to-cache) for these nodes.
- **The outage of ten minutes is simulated**: objects change, the hubs are restarted, so that they have the changes only in their
  files, and etcd is compacted and the apiserver restarted, so that it has no history. Before each way with hubs they are
  restarted again.
- **caught up**: from the start of the process until the last node has the last change. Then keys and resourceVersions of all
  objects of all nodes are compared with the apiserver's.
- **bytes** are payload of TCP, counted by the kernel. **CPU** is that of a process from before the first node until two seconds after
  the last has caught up. From the apiserver's, what it takes without nodes is taken off, which is less certain the longer it takes.
- **memory** is resident memory: of a hub the highest since its last restart.
`

// Limits of the model.
const (
	hubConnections = 4096 // of other machines, with driver.HubMemory: docs/kubernetes-api.md
	modelSeconds   = 60   // in which a fleet should be back
)

// returnStage returns the stage with a fleet that comes back, or nil.
func returnStage(run *result.Run) *result.Stage {
	for i := range run.Stages {
		if len(run.Stages[i].Returns) > 0 {
			return &run.Stages[i]
		}
	}
	return nil
}

// Return returns fleet.md: a fleet that comes back, in three ways.
func Return(run *result.Run, st *result.Stage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The return of a fleet\n\nThis page is written by `%s`. Don't edit it. All figures are of one run:\n[what was measured](fleet.json) is beside it.\n\n", run.Command)
	versions(&b, run)
	c := returnOf(st, driver.AgentsSharing)
	fmt.Fprintf(&b, "\n## Targets\n\n%s objects, %s of which change during an outage of ten minutes, and %s agents on %d hubs. One round.\n\n| | agents on hubs | beside | wanted | measured | |\n|---|---|---|---|---|---|\n",
		humanize.Comma(int64(st.Objects)), humanize.Comma(int64(c.Changed)), humanize.Comma(int64(c.Nodes)), len(c.Hubs))
	for _, t := range slices.Concat(returnTargets(st, driver.AgentsSharing), returnTargets(st, driver.AgentsOnHubs)) {
		v := judge(t)
		fmt.Fprintf(&b, "| %s | %s | %s %s | at most %s | %s | %s |\n", t.what, strings.TrimPrefix(t.ours.of, "agents on hubs, ")+": "+withSpread(t.ours.at, t.ours.text), t.theirs.of,
			withSpread(t.theirs.at, t.theirs.text), fraction(t.ratio), fraction(v.got), v.text)
	}
	if a := returnOf(st, driver.Informers); a.Nodes < c.Nodes {
		fmt.Fprintf(&b, "\nA node that lists takes seconds of all CPUs, so that only %d nodes do, %.1f times fewer than those on hubs: CPU and bytes are\ncompared for each node, and times as they are, which is in favour of the nodes that list.\n",
			a.Nodes, float64(c.Nodes)/float64(a.Nodes))
	}
	b.WriteString("\n## Figures\n\n")
	returnTable(&b, st)
	b.WriteString("\n## Larger fleets\n\n")
	returnModel(&b, st)
	b.WriteString("\n## What is measured\n\n" + returnExplained)
	return b.String()
}

func returnOf(st *result.Stage, way string) result.Return {
	for _, r := range st.Returns {
		if r.Way == way {
			return r
		}
	}
	return result.Return{}
}

// fraction formats a ratio that may be small.
func fraction(r float64) string {
	switch {
	case math.IsNaN(r):
		return "-"
	case r < 0.2:
		return fmt.Sprintf("1/%.0f", 1/r)
	default:
		return fmt.Sprintf("%.2fx", r)
	}
}

// one is a single measurement, none if there was no return.
func one(r result.Return, of string, value float64, text func(float64) string) figure {
	if r.Nodes == 0 {
		return figure{of: of, text: text}
	}
	return figure{of, measure.SpreadOf([]float64{value}), text}
}

// returnTargets returns the targets of one way with hubs.
func returnTargets(st *result.Stage, hubs string) []target {
	versus := func(what, way string, of func(result.Return) float64, text func(float64) string, ratio float64) target {
		ours, theirs := returnOf(st, hubs), returnOf(st, way)
		return target{what: what, ours: one(ours, hubs, of(ours), text), theirs: one(theirs, way, of(theirs), text), ratio: ratio, atMost: true}
	}
	step := func(r result.Return) float64 { return r.CaughtUpSeconds }
	cpu := versus("apiserver's CPU for a node", driver.Informers, serverCPUOf, textOf("s"), 1.0/500)
	cpu.floor = noise / max(1, float64(returnOf(st, hubs).Nodes))
	all := []target{
		cpu,
		versus("bytes to a node", driver.AgentsDirect, bytesOf, size, 1.0/30),
	}
	ours, worst := returnOf(st, hubs), target{}
	for _, h := range ours.Hubs {
		limit := 150<<20 + 40<<10*float64(h.Nodes)
		t := target{
			what: "peak memory of a hub", ours: one(ours, hubs, float64(h.After.Peak), size),
			theirs: one(ours, fmt.Sprintf("150 MiB + 40 KiB for each of %d nodes:", h.Nodes), limit, size), ratio: 1, atMost: true,
		}
		if worst.what == "" || judge(t).got > judge(worst).got {
			worst = t
		}
	}
	return append(all, worst, versus("last node caught up", driver.Informers, step, seconds, 1), versus("last node caught up", driver.AgentsDirect, step, seconds, 1))
}

// The costs of one node.
func serverCPUOf(r result.Return) float64 { return r.ServerCPU / float64(r.Nodes) }
func bytesOf(r result.Return) float64     { return float64(r.Wire.Received) / float64(r.Nodes) }

// sumOfHubs returns the cost of all hubs, and the peak of one.
func sumOfHubs(r result.Return) (cpu, growth float64, peak int64) {
	for _, h := range r.Hubs {
		cpu, growth, peak = cpu+h.CPU, growth+float64(h.After.Anon-h.Before.Anon), max(peak, h.After.Peak)
	}
	return cpu, growth, peak
}

func returnTable(b *strings.Builder, st *result.Stage) {
	b.WriteString("| | " + strings.Join([]string{
		"nodes", "last caught up", "bytes to a node", "from a node", "lists", "reviews at the apiserver", "apiserver's CPU", "for a node", "idle, a second",
		"hubs' CPU", "largest hub", "nodes' CPU",
	}, " | ") + " |\n" + strings.Repeat("|---", 13) + "|\n")
	for _, r := range st.Returns {
		lists, hubs, largest := fmt.Sprint(r.Lists), "-", "-"
		if r.Way == driver.Informers {
			lists = "by a watch"
		}
		if len(r.Hubs) > 0 {
			cpu, _, peak := sumOfHubs(r)
			hubs, largest = seconds(cpu), size(float64(peak))
		}
		reviews := r.Requests["tokenreviews"] + r.Requests["subjectaccessreviews"]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %d | %s | %s | %s | %s | %s | %s |\n", r.Way, humanize.Comma(int64(r.Nodes)), seconds(r.CaughtUpSeconds),
			size(bytesOf(r)), size(float64(r.Wire.Sent)/float64(r.Nodes)), lists, reviews, seconds(r.ServerCPU), seconds(serverCPUOf(r)),
			seconds(r.Idle), hubs, largest, seconds(r.SettledCPU))
	}
}

// bound is the number of nodes that something is enough for.
type bound struct {
	what  string
	nodes float64
}

// bounds returns the limits of a way, and the one that is reached first.
func bounds(r result.Return) (first bound, all []bound) {
	all = []bound{
		{fmt.Sprintf("%d CPUs of the apiserver, in a minute", modelCPUs), modelSeconds * modelCPUs / max(serverCPUOf(r), 1e-9)},
		{"a link of " + size(modelLink) + " a second, in a minute", modelSeconds * modelLink / bytesOf(r)},
	}
	if n := float64(r.Nodes); len(r.Hubs) > 0 {
		cpu, _, _ := sumOfHubs(r)
		all = append(all, bound{"connections of one hub", hubConnections},
			bound{fmt.Sprintf("%d CPUs of one hub, in a minute", modelCPUs), modelSeconds * modelCPUs / (cpu / n)},
			bound{size(driver.HubMemory) + " of one hub's memory", fitHub(r)})
	}
	first = all[0]
	for _, x := range all {
		if x.nodes < first.nodes {
			first = x
		}
	}
	return first, all
}

// fitHub returns how many nodes the memory of a hub is enough for.
func fitHub(r result.Return) float64 {
	_, growth, _ := sumOfHubs(r)
	before := float64(r.Hubs[0].Before.Anon + r.Hubs[0].Before.File)
	return (driver.HubMemory - before) / max(growth/float64(r.Nodes), 1)
}

// replicasFor returns how many hubs n nodes need.
func replicasFor(n float64, r result.Return) float64 {
	return math.Ceil(n / min(hubConnections, fitHub(r)))
}

// returnModel multiplies the cost of a node.
func returnModel(b *strings.Builder, st *result.Stage) {
	fmt.Fprintf(b, "What a node cost above, times the number of nodes. The least time is that of an apiserver and of hubs with %d CPUs each to\n"+
		"themselves, and of links of %s a second, whichever takes longer. A hub has as many nodes as\nit takes connections, %s, and has memory for, of %s.\n\n"+
		"| nodes | | hubs | bytes | apiserver's CPU | CPU of a hub | memory that a hub grows by | least time |\n|---|---|---|---|---|---|---|---|\n", modelCPUs, size(modelLink), humanize.Comma(hubConnections), size(driver.HubMemory))
	for _, n := range []float64{1_000, 10_000, 100_000} {
		for _, r := range st.Returns {
			hubs, hubCPU, hubGrowth := "-", "-", "-"
			bytes, cpu := n*bytesOf(r), max(0, n*serverCPUOf(r))
			least := max(bytes/modelLink, cpu/modelCPUs)
			if len(r.Hubs) > 0 {
				replicas := replicasFor(n, r)
				used, growth, _ := sumOfHubs(r)
				each := n / replicas / float64(r.Nodes)
				hubs, hubCPU, hubGrowth = humanize.Comma(int64(replicas)), duration(used*each), size(growth*each)
				least = max(bytes/replicas/modelLink, cpu/modelCPUs, used*each/modelCPUs)
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", humanize.Comma(int64(n)), r.Way, hubs, size(bytes), duration(cpu), hubCPU, hubGrowth, duration(least))
		}
	}
	b.WriteString("\nWhere it breaks, as the number of nodes that each is enough for:\n\n")
	for _, r := range st.Returns {
		first, all := bounds(r)
		var texts []string
		for _, x := range all {
			texts = append(texts, fmt.Sprintf("%s: %s", x.what, humanize.Comma(int64(x.nodes))))
		}
		fmt.Fprintf(b, "- **%s**: at %s nodes, by %s. (%s.)\n", r.Way, humanize.Comma(int64(first.nodes)), first.what, strings.Join(texts, "; "))
	}
	replicas, each := 0.0, 0.0
	if c := returnOf(st, driver.AgentsOnHubs); c.Nodes > 0 {
		replicas = replicasFor(100_000, c)
		each = float64(c.Requests["tokenreviews"]+c.Requests["subjectaccessreviews"]) / float64(c.Nodes)
	}
	fmt.Fprintf(b, "\nMore hubs take more nodes, but each has all objects and watches of its own: %s of them, for 100,000 nodes, are a fleet themselves.\n"+
		"What does not shrink with more hubs is what they ask the apiserver about nodes: %.1f reviews of the token and the rights of a node with\n"+
		"an account of its own, %s for 100,000 nodes. Nodes that share an account share the reviews of its rights, but also its "+
		"[limits](../kubernetes-api.md#limits).\n\n"+
		"The model leaves out retries, queues, the wait of `resumeJitter`, and the memory of the apiserver. It is a line through one point.\n",
		humanize.Comma(int64(replicas)), each, humanize.Comma(int64(100_000*each)))
}
