package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// fleetOf returns the spread of the fleets of one kind and size.
func fleetOf(st *result.Stage, nodes int, scenario, peer string, of func(result.Fleet) float64) measure.Spread {
	var values []float64
	for _, f := range st.Fleets {
		if f.Nodes == nodes && f.Scenario == scenario && f.Peer == peer {
			values = append(values, of(f))
		}
	}
	return measure.SpreadOf(values)
}

// sizes returns the sizes of the stage's fleets, in order.
func sizes(st *result.Stage) []int {
	return slices.Sorted(slices.Values(unique(st.Fleets, func(f result.Fleet) int { return f.Nodes })))
}

func fleetTable(b *strings.Builder, st *result.Stage) {
	fmt.Fprintf(b, "\nAll nodes start at once in one process, each with a connection of its own and, with snapcache, a store of its\n"+
		"own. Each caches all endpointslices and configmaps (%d objects). Time is until the last one is caught up: client and server\n"+
		"share the CPUs of this machine.\n\n"+
		"| nodes | | | caught up | gets | lists | watches | bytes from the server | apiserver's CPU | clients' CPU |\n|---|---|---|---|---|---|---|---|---|---|\n",
		st.Resources["configmaps"]+st.Resources["endpointslices.discovery.k8s.io"])
	for _, nodes := range sizes(st) {
		for _, scenario := range unique(st.Fleets, func(f result.Fleet) string { return f.Scenario }) {
			for _, peer := range unique(st.Fleets, func(f result.Fleet) string { return f.Peer }) {
				b.WriteString("| " + strings.Join(fleetRow(st, nodes, scenario, peer), " | ") + " |\n")
			}
		}
	}
}

func fleetRow(st *result.Stage, nodes int, scenario, peer string) []string {
	of := func(value func(result.Fleet) float64) measure.Spread {
		return fleetOf(st, nodes, scenario, peer, value)
	}
	row := []string{humanize.Comma(int64(nodes)), scenario, peer, withSpread(of(func(f result.Fleet) float64 { return f.CaughtUpSeconds }), seconds)}
	for _, verb := range []string{"GET", "LIST", "WATCH"} {
		row = append(row, withSpread(of(func(f result.Fleet) float64 { return float64(f.Requests[verb]) }), func(n float64) string { return fmt.Sprintf("%.0f", n) }))
	}
	return append(row, withSpread(of(func(f result.Fleet) float64 { return float64(f.Received) }), size),
		withSpread(of(func(f result.Fleet) float64 { return f.ServerCPU }), seconds),
		withSpread(of(func(f result.Fleet) float64 { return f.SettledCPU }), seconds))
}

// fleetStage returns the stage with fleets, or nil.
func fleetStage(run *result.Run) *result.Stage {
	for i := range run.Stages {
		if len(run.Stages[i].Fleets) > 0 {
			return &run.Stages[i]
		}
	}
	return nil
}

// model multiplies the cost of a node of the largest fleet. It also compares the prediction from
// the smallest fleet with the measured largest one.
func model(b *strings.Builder, st *result.Stage) {
	all := sizes(st)
	largest := all[len(all)-1]
	peers := unique(st.Fleets, func(f result.Fleet) string { return f.Peer })
	fmt.Fprintf(b, "\nWhat a node of the largest fleet above cost on a restart, times the number of nodes. The least time is that of an\n"+
		"apiserver with %d CPUs to itself and a link of %s a second, whichever takes longer.\n\n"+
		"| nodes | | bytes from the server | apiserver's CPU | least time |\n|---|---|---|---|---|\n", modelCPUs, size(modelLink))
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		for _, peer := range peers {
			m := predict(st, largest, peer, nodes)
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", humanize.Comma(int64(nodes)), peer, size(m.bytes), duration(m.cpu), duration(m.seconds))
		}
	}
	if len(all) == 1 {
		return
	}
	fmt.Fprintf(b, "\nThe model held against a measurement: what it says of %d nodes by those of %d, and what they cost.\n\n"+
		"| | bytes, model | measured | apiserver's CPU, model | measured |\n|---|---|---|---|---|\n", largest, all[0])
	for _, peer := range peers {
		m, is := predict(st, all[0], peer, largest), predict(st, largest, peer, largest)
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", peer, size(m.bytes), size(is.bytes), duration(m.cpu), duration(is.cpu))
	}
}

// The model's apiserver.
const (
	modelCPUs = 8
	modelLink = 1.25e9 // bytes per second: 10 Gbit/s
)

// prediction is the cost of nodes that restart at once without changes.
type prediction struct{ bytes, cpu, seconds float64 }

// predict computes the prediction from a measured fleet.
func predict(st *result.Stage, measured int, peer string, nodes int) prediction {
	each := func(value func(result.Fleet) float64) float64 {
		return float64(nodes) * fleetOf(st, measured, driver.Restart0, peer, func(f result.Fleet) float64 { return value(f) / float64(f.Nodes) }).Median
	}
	p := prediction{
		bytes: each(func(f result.Fleet) float64 { return float64(f.Received) }),
		cpu:   max(0, each(func(f result.Fleet) float64 { return f.ServerCPU })),
	}
	p.seconds = max(p.bytes/modelLink, p.cpu/modelCPUs)
	return p
}

// duration formats a time that may be long.
func duration(s float64) string {
	switch {
	case s < 120:
		return seconds(s)
	case s < 2*3600:
		return fmt.Sprintf("%.0f min", s/60)
	default:
		return fmt.Sprintf("%.1f h", s/3600)
	}
}
