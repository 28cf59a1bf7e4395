package report

import (
	"fmt"
	"math"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// The stages of the targets.
const (
	small  = "pods-1000"
	medium = "pods-20000"
	large  = "pods-100000"
)

// noise is the smallest measurable CPU time, in seconds: an idle apiserver varies by as much.
const noise = 0.01

// target is one goal of snapcache, as a ratio.
type target struct {
	what string
	// ours and theirs are two figures of one run. The ratio is theirs/ours if more is better, and
	// ours/theirs if atMost is set.
	ours, theirs figure
	ratio        float64
	atMost       bool
	floor        float64 // the smallest value of ours that can be measured; 0 for none
	why          string  // the reason why it may not be reached; empty if none is known
	difference   bool    // theirs is a small difference of two large figures
}

// figure is one side of a ratio.
type figure struct {
	of   string // the subject
	at   measure.Spread
	text func(float64) string
}

// verdict is the result of a target.
type verdict struct {
	target
	got  float64 // NaN where it was not measured
	text string
}

func start(run *result.Run, stageName, scenario, peer string, m metric) figure {
	return figure{peer, spread(stage(run, stageName), scenario, peer, m), m.text}
}

// targets returns all targets, for the agent unless they name another peer.
func targets(run *result.Run) []target {
	versus := func(what, scenario, peer string, m metric, ratio float64) target {
		return target{what: what, ours: start(run, medium, scenario, driver.Agent, m), theirs: start(run, medium, scenario, peer, m), ratio: ratio}
	}
	none := "on a restart with nothing changed"
	server := versus("apiserver's CPU "+none, driver.Restart0, driver.Typed, serverCPU, 20)
	server.floor = noise
	cpu, wall := versus("CPU on the first sync", driver.First, driver.Typed, clientCPU, 0.95), versus("caught up on the first sync", driver.First, driver.Typed, caughtUpTime, 1.2)
	for _, t := range []*target{&cpu, &wall} {
		t.atMost, t.why = true, "JSON is unpacked, checked, compressed and stored: [where the time goes](../performance.md#a-first-sync)"
	}
	all := []target{
		versus("to the first correct read after a restart", driver.Restart0, driver.Typed, readTime, 50),
		versus("caught up after a restart with 1 % changed", driver.Restart1, driver.Typed, caughtUpTime, 20),
		versus("bytes from the server "+none, driver.Restart0, driver.Typed, received, 1000),
		server,
		versus("peak memory on the first sync", driver.First, driver.Typed, peakMemory, 8),
		versus("peak memory on the first sync", driver.First, driver.Dynamic, peakMemory, 25),
		versus("settled memory after a restart", driver.Restart0, driver.Typed, settledAll, 8),
		versus("settled memory after a restart", driver.Restart0, driver.Dynamic, settledAll, 25),
		cpu, wall,
		versus("CPU on the first sync", driver.First, driver.Dynamic, clientCPU, 6),
	}
	few, many := start(run, small, driver.Restart0, driver.Agent, readTime), start(run, large, driver.Restart0, driver.Agent, readTime)
	some := start(run, medium, driver.Restart0, driver.Agent, readTime)
	few.of, some.of, many.of = "1,000 objects", "20,000 objects", "100,000 objects"
	for _, pair := range [][2]figure{{some, few}, {many, some}} {
		all = append(all, target{what: "to the first correct read, as the number of objects grows", ours: pair[0], theirs: pair[1], ratio: 2, atMost: true})
	}
	json := figure{of: "JSON as sent", text: size}
	if st := stage(run, medium); st != nil {
		json.at = measure.SpreadOf([]float64{float64(st.JSONBytes)})
	}
	all = append(all, target{what: "size on disk", ours: start(run, medium, driver.First, driver.Agent, onDisk), theirs: json, ratio: 0.15, atMost: true})
	return append(all, libraryTargets(run, json)...)
}

// libraryTargets returns the targets of the durable library beside client-go's typed informer.
func libraryTargets(run *result.Run, json figure) []target {
	versus := func(what, scenario string, m metric, ratio float64) target {
		return target{
			what: what, ours: start(run, medium, scenario, driver.LibraryBolt, m), theirs: start(run, medium, scenario, driver.Typed, m), ratio: ratio, atMost: true,
		}
	}
	stream := func(what string, of func(result.Stream) float64, ratio float64) target {
		side := func(peer string) figure { return figure{peer, delays(stage(run, medium), 100, peer, of), seconds} }
		return target{what: what + " at 100 changes a second", ours: side(driver.LibraryBolt), theirs: side(driver.Typed), ratio: ratio, atMost: true}
	}
	change := stream("CPU for a change", changeCPU, 1.2)
	change.why = "the previous state is read and decoded too, and the new one is compressed and stored: [where the time goes](../performance.md#a-change)"
	late := stream("from a change to a handler, p99", changeP99, 1)
	late.why = "a change takes more of the CPUs that the server is on too: [where the time goes](../performance.md#a-change)"
	return []target{
		versus("caught up on the first sync", driver.First, caughtUpTime, 1.3),
		versus("CPU on the first sync", driver.First, clientCPU, 1.3),
		versus("peak memory on the first sync", driver.First, peakMemory, 0.16),
		{what: "size on disk", ours: start(run, medium, driver.First, driver.LibraryBolt, onDisk), theirs: json, ratio: 0.12, atMost: true},
		versus("CPU on a restart with 1 % changed and a handler", driver.Handled, clientCPU, 0.9),
		versus("to the last change handled, on such a restart", driver.Handled, caughtUpTime, 0.1),
		late,
		change,
	}
}

func judge(t target) verdict {
	v := verdict{target: t, got: math.NaN()}
	if t.ours.at.Count == 0 || t.theirs.at.Count == 0 {
		v.text = "not measured"
		return v
	}
	if at := t.theirs.at; t.difference && (at.Median <= 0 || at.High-at.Low > at.Median) {
		v.text = "too noisy to judge"
		return v
	}
	if t.theirs.at.Median <= 0 {
		v.text = "too little to be measured"
		return v
	}
	ours, theirs := t.ours.at.Median, t.theirs.at.Median
	below := ours < t.floor
	if below {
		ours = t.floor
	}
	reached := false
	if t.atMost {
		v.got = ours / theirs
		reached = v.got <= t.ratio
	} else {
		v.got = theirs / ours
		reached = v.got >= t.ratio
	}
	v.text = "**not reached**"
	if t.why != "" {
		v.text += ": " + t.why
	}
	if reached {
		v.text = "reached"
	}
	if below {
		v.text += fmt.Sprintf(" (ours can't be distinguished from an idle server's; counted as %s)", seconds(t.floor))
	}
	return v
}
