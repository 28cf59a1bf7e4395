package report

import (
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
)

// metric is one figure of a start.
type metric struct {
	name string
	of   func(result.Cost) float64
	text func(float64) string
}

var (
	readTime     = metric{"first correct read", func(c result.Cost) float64 { return c.ReadSeconds }, seconds}
	caughtUpTime = metric{"caught up", func(c result.Cost) float64 { return c.CaughtUpSeconds }, seconds}
	received     = metric{"bytes from the server", func(c result.Cost) float64 { return float64(c.Received) }, size}
	clientCPU    = metric{"CPU", func(c result.Cost) float64 { return c.SettledCPU }, seconds}
	serverCPU    = metric{"apiserver's CPU", func(c result.Cost) float64 { return c.ServerCPU }, seconds}
	peakMemory   = metric{"peak memory", func(c result.Cost) float64 { return float64(c.Peak) }, size}
	settledAnon  = metric{"settled, own", func(c result.Cost) float64 { return float64(c.Own()) }, size}
	peakOwn      = metric{"peak, own", func(c result.Cost) float64 { return float64(c.PeakOwn) }, size}
	handledTime  = metric{"all handled", func(c result.Cost) float64 { return c.HandledSeconds }, seconds}
	collector    = metric{"garbage collector, of the CPU", func(c result.Cost) float64 { return c.Collector }, percent}
	settledFile  = metric{"settled, of files", func(c result.Cost) float64 { return float64(c.File) }, size}
	onDisk       = metric{"on disk", func(c result.Cost) float64 { return float64(c.DiskBytes) }, size}
	writtenDisk  = metric{"written", func(c result.Cost) float64 { return float64(c.WrittenBytes) }, size}
	// settledAll is the metric of the targets for settled memory: all resident memory.
	settledAll = metric{"settled memory", func(c result.Cost) float64 { return float64(c.Anon + c.File) }, size}
)

// costs are the metrics of a start, in the order of the columns.
var costs = []metric{readTime, caughtUpTime, received, clientCPU, serverCPU, peakMemory, settledAnon, settledFile, onDisk, writtenDisk}

// laterCosts are shown as far as they were measured.
var laterCosts = []metric{peakOwn, handledTime, collector}

// stage returns a stage by name, or nil.
func stage(run *result.Run, name string) *result.Stage {
	for i := range run.Stages {
		if run.Stages[i].Name == name {
			return &run.Stages[i]
		}
	}
	return nil
}

// spread returns the spread of a peer's turns in a scenario. Its Count is 0 if there were none.
func spread(st *result.Stage, scenario, peer string, m metric) measure.Spread {
	var values []float64
	if st != nil {
		for _, t := range st.Turns {
			if t.Scenario == scenario && t.Peer == peer {
				values = append(values, m.of(t.Cost))
			}
		}
	}
	return measure.SpreadOf(values)
}

// changeCPU returns a client's CPU time for a change, in seconds.
func changeCPU(s result.Stream) float64 { return s.CPU / float64(max(1, s.Changes)) }

// changeP99 returns the 99th percentile from a change to a handler, in seconds.
func changeP99(s result.Stream) float64 { return s.Handled.P99 }

// delays returns the spread of a peer's streams at a rate, if they had nothing beside them.
func delays(st *result.Stage, rate float64, peer string, of func(result.Stream) float64) measure.Spread {
	return delaysBeside(st, rate, peer, false, of)
}

// delaysBeside returns the spread of a peer's streams at a rate without other peers, with or without busy loops.
func delaysBeside(st *result.Stage, rate float64, peer string, busy bool, of func(result.Stream) float64) measure.Spread {
	var values []float64
	if st != nil {
		for _, s := range st.Streams {
			if s.Rate == rate && s.Peer == peer && s.Beside == 0 && s.Busy == busy {
				values = append(values, of(s))
			}
		}
	}
	return measure.SpreadOf(values)
}

// unique returns the values of the items, each once, in order of first occurrence.
func unique[T any, K comparable](items []T, of func(T) K) []K {
	var keys []K
	seen := map[K]bool{}
	for _, item := range items {
		if k := of(item); !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	return keys
}
