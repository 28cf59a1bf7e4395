package driver

import (
	"slices"
	"time"
)

// The scenarios of a start.
const (
	First     = "first"           // nothing is stored
	Restart0  = "restart-0"       // nothing has changed since the peer ended, but for the mark
	Restart1  = "restart-1"       // 1 % of the objects have
	Restart10 = "restart-10"      // 10 % have
	Handled   = "restart-handler" // 1 % have, and a handler is told of every object
	Expired   = "expired"         // 1 % have, and the server remembers nothing of before: 410
)

// The peers. Agent is the program; the others are cmd/peer's.
const (
	Agent             = "agent"
	LibraryBolt       = "library-bolt"
	LibraryMemory     = "library-memory"
	Typed             = "typed"
	TypedTrimmed      = "typed-trimmed"
	TypedJSON         = "typed-json"
	Dynamic           = "dynamic"
	Metadata          = "metadata"
	ControllerRuntime = "controller-runtime"
)

var (
	allPeers = []string{Agent, LibraryBolt, LibraryMemory, Typed, TypedTrimmed, TypedJSON, Dynamic, Metadata, ControllerRuntime}
	durable  = []string{Agent, LibraryBolt}
	core     = []string{Agent, LibraryBolt, Typed}
	targets  = []string{Agent, Typed} // what most of the targets are about
	handlers = []string{LibraryBolt, LibraryMemory, Typed, Dynamic, ControllerRuntime}
)

// Plan is what a run consists of.
type Plan struct {
	Name string
	// Settle is the time from in step to the end of a measurement.
	Settle time.Duration
	Stages []Stage
}

// Stage is one control plane with its objects and what is done there.
type Stage struct {
	Name   string
	Pods   int
	Others int // of each other resource, which makes all resources be cached; 0 for pods alone
	Rounds []Round
	// Streams are for how long changes come at a rate, by changes a second, with each
	// of the peers by itself.
	Streams []Stream
	Fleets  []Fleet
}

// Round has each of the peers start once.
type Round struct {
	Scenario string
	Peers    []string
}

// Stream has the peers, together where there are several, follow changes.
type Stream struct {
	Rate     float64
	Duration time.Duration
	Peers    []string
	// Durable waits until the library says that all changes are durable.
	Durable bool
}

// Fleet has many nodes start, Rounds times anew and Rounds times again. What the smaller of two
// cost is held against the larger.
type Fleet struct {
	Nodes  int
	Rounds int
}

// Plans are those that there are, by name.
var Plans = map[string]Plan{
	// About ten minutes on two cores with nothing else to do.
	"standard": {
		Name: "standard", Settle: 2 * time.Second,
		Stages: []Stage{
			{Name: "pods-1000", Pods: 1_000, Rounds: slices.Concat(
				rounds(First, 1, allPeers), rounds(Restart0, 3, core),
			)},
			{Name: "pods-20000", Pods: 20_000, Rounds: slices.Concat(
				rounds(First, 1, allPeers), rounds(First, 2, targets),
				rounds(Restart0, 1, []string{Agent, LibraryBolt, Typed, Dynamic}), rounds(Restart0, 2, targets),
				rounds(Restart1, 1, core), rounds(Restart1, 2, targets), rounds(Restart10, 1, core), rounds(Handled, 1, []string{LibraryBolt, Typed}),
				rounds(Expired, 1, core),
			), Streams: slices.Concat(
				streams(100, 10*time.Second, 3, LibraryBolt, Typed),
				together(100, 20*time.Second, durable),
			)},
			{Name: "pods-100000", Pods: 100_000, Rounds: slices.Concat(
				rounds(First, 1, targets), rounds(Restart0, 3, []string{Agent}),
			)},
			{Name: "mixed", Pods: 1_000, Others: 1_000, Rounds: slices.Concat(rounds(First, 1, core), rounds(Restart1, 1, core)), Fleets: []Fleet{{Nodes: 200, Rounds: 1}}},
		},
	},
	// An hour and a quarter: all peers at all sizes, more often, streams that are long enough
	// for many flushes, and a second fleet to hold the model against.
	"full": {
		Name: "full", Settle: 2 * time.Second,
		Stages: []Stage{
			{Name: "pods-1000", Pods: 1_000, Rounds: everything(3, 2, 2)},
			{Name: "pods-20000", Pods: 20_000, Rounds: everything(3, 2, 3), Streams: slices.Concat(
				streams(100, 20*time.Second, 3, LibraryBolt, LibraryMemory, Typed, ControllerRuntime, Agent),
				together(1, 4*time.Minute, durable), together(10, 4*time.Minute, durable), together(100, 2*time.Minute, durable),
			)},
			{Name: "pods-100000", Pods: 100_000, Rounds: everything(2, 1, 2), Streams: slices.Concat(streams(100, 20*time.Second, 1, LibraryBolt, Typed), together(10, 2*time.Minute, durable))},
			{Name: "mixed", Pods: 1_000, Others: 1_000, Rounds: slices.Concat(rounds(First, 2, allPeers), rounds(Restart1, 2, allPeers)), Fleets: []Fleet{{Nodes: 50, Rounds: 2}, {Nodes: 200, Rounds: 2}}},
		},
	},
	// That everything works. Its numbers say nothing.
	"smoke": {
		Name: "smoke", Settle: 100 * time.Millisecond,
		Stages: []Stage{
			{Name: "pods-100", Pods: 100, Rounds: slices.Concat(
				rounds(First, 1, allPeers), rounds(Restart0, 1, core), rounds(Restart1, 1, core),
			)},
			{Name: "mixed", Pods: 300, Others: 30, Rounds: slices.Concat(
				rounds(First, 1, allPeers), rounds(Restart0, 1, core), rounds(Restart1, 1, core), rounds(Restart10, 1, durable),
				rounds(Handled, 1, handlers), rounds(Expired, 1, core),
			), Streams: slices.Concat(streams(100, time.Second, 1, LibraryBolt, LibraryMemory, Typed, ControllerRuntime, Agent), together(100, time.Second, durable)),
				Fleets: []Fleet{{Nodes: 2, Rounds: 1}, {Nodes: 4, Rounds: 1}}},
		},
	},
}

// everything has all scenarios: n rounds of each, but for the two that are given.
func everything(n, handled, expired int) []Round {
	return slices.Concat(
		rounds(First, n, allPeers), rounds(Restart0, n, allPeers), rounds(Restart1, n, core), rounds(Restart10, n, core),
		rounds(Handled, handled, handlers), rounds(Expired, expired, core),
	)
}

// rounds are n rounds of one scenario, each in another order.
func rounds(scenario string, n int, peers []string) []Round {
	all := make([]Round, n)
	for i := range all {
		from := i % len(peers)
		all[i] = Round{scenario, slices.Concat(peers[from:], peers[:from])}
	}
	return all
}

// streams are n times the peers one after the other, each in another order.
func streams(rate float64, d time.Duration, n int, peers ...string) []Stream {
	var all []Stream
	for _, r := range rounds("", n, peers) {
		for _, p := range r.Peers {
			all = append(all, Stream{Rate: rate, Duration: d, Peers: []string{p}})
		}
	}
	return all
}

// together is one stream with all the peers at once, until what they heard of is durable:
// for bytes, which don't depend on who else is there.
func together(rate float64, d time.Duration, peers []string) []Stream {
	return []Stream{{Rate: rate, Duration: d, Peers: peers, Durable: true}}
}
