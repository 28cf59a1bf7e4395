package driver

import (
	"slices"
	"time"
)

// The scenarios of a start.
const (
	First     = "first"           // no stored data
	Restart0  = "restart-0"       // only the marks have changed since the peer ended
	Restart1  = "restart-1"       // 1 % of the objects have changed
	Restart10 = "restart-10"      // 10 % have changed
	Handled   = "restart-handler" // 1 % have changed, and a handler receives every object

	FirstHandled = "first-handler" // no stored data, and a handler receives every object
	Expired      = "expired"       // 1 % have changed, and the server has no history: 410
)

// The peers. Agent is the snapcache program; the others are cmd/peer's.
const (
	Agent             = "agent"
	LibraryBolt       = "library-bolt"
	LibraryLimited    = "library-bolt-64MiB" // under GOMEMLIMIT=64MiB
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
	targets  = []string{Agent, Typed} // the peers of most targets
	handlers = []string{LibraryBolt, LibraryMemory, Typed, Dynamic, ControllerRuntime}
)

// Plan describes a run.
type Plan struct {
	Name string
	// Settle is the time from being caught up to the end of a measurement.
	Settle time.Duration
	Stages []Stage
}

// Stage is one control plane with its objects and its measurements.
type Stage struct {
	Name   string
	Pods   int
	Others int // of each other resource, so that all resources are cached; 0 for only pods
	// Generated is the number of pods of a stage without a control plane: the durable library, with a handler, lists
	// them from a server that makes them up.
	Generated int
	Rounds    []Round
	// Streams are changes at a rate, with each of the peers by itself.
	Streams []Stream
	Fleets  []Fleet
	API     *API          // nil for none
	Live    time.Duration // of each kind of reads without a cache
	Return  *Return       // nil for none
	Restart *Restart
}

// Round starts each of the peers once.
type Round struct {
	Scenario string
	Peers    []string
}

// Stream lets the peers follow changes, together if there are several.
type Stream struct {
	Rate     float64
	Duration time.Duration
	Peers    []string
	// Durable waits until the library reports that all changes are durable.
	Durable bool
	// Busy has a loop for each CPU beside it, which takes what the scheduler gives it.
	Busy bool
}

// Fleet starts many nodes, Rounds times without data and Rounds times again. The cost of the
// smaller of two fleets predicts the larger's.
type Fleet struct {
	Nodes  int
	Rounds int
}

// Return is a fleet that comes back after an outage of ten minutes.
type Return struct {
	Nodes   int     // that follow hubs
	Listing int     // that list at the apiserver: each takes seconds of the machine's CPUs
	Hubs    int     // replicas, which share the nodes
	Share   float64 // of the objects that have changed
}

// Restart is the return of nodes after a restart of the apiserver.
type Restart struct {
	Kine       bool // on SQLite, as k3s runs it, in place of etcd
	Nodes      int  // with 24 pods each
	ConfigMaps int
	Services   int // and as many endpointslices
	Rounds     int
	Share      float64 // of the objects that have changed meanwhile
}

// Plans are the existing plans, by name.
var Plans = map[string]Plan{
	// About ten minutes on two otherwise idle cores.
	"standard": {
		Name: "standard", Settle: 2 * time.Second,
		Stages: []Stage{
			{Name: "pods-1000", Pods: 1_000, Rounds: slices.Concat(
				rounds(First, 1, allPeers), rounds(Restart0, 3, core),
			)},
			{Name: "pods-20000", Pods: 20_000, Rounds: slices.Concat(
				rounds(First, 1, allPeers), rounds(First, 2, core),
				rounds(Restart0, 1, []string{Agent, LibraryBolt, Typed, Dynamic}), rounds(Restart0, 2, targets),
				rounds(Restart1, 1, core), rounds(Restart1, 2, targets), rounds(Restart10, 1, core), rounds(Handled, 3, []string{LibraryBolt, Typed}),
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
	// An hour and a quarter: all peers at all sizes, more rounds, streams long enough for many
	// flushes, and a second fleet to verify the model.
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
	// Three minutes: only the library's targets beside client-go's typed informer.
	"library": {
		Name: "library", Settle: 2 * time.Second,
		Stages: []Stage{{
			Name: "pods-20000", Pods: 20_000,
			Rounds:  slices.Concat(rounds(First, 3, core), rounds(Handled, 3, []string{LibraryBolt, Typed})),
			Streams: streams(100, 10*time.Second, 3, LibraryBolt, Typed),
		}},
	},
	// Three quarters of an hour: the durable library beside informers that hold all objects in memory, at 100,000 pods, and
	// alone at up to a million.
	"library-100000": {
		Name: "library-100000", Settle: 3 * time.Second,
		Stages: []Stage{
			{Name: "generated-20000", Generated: 20_000},
			{Name: "generated-100000", Generated: 100_000},
			{Name: "pods-100000", Pods: 100_000, Rounds: slices.Concat(
				rounds(First, 1, []string{Typed, TypedTrimmed, Metadata, ControllerRuntime, LibraryBolt}),
				rounds(FirstHandled, 1, []string{Typed, LibraryLimited, LibraryBolt}), rounds(Restart1, 1, []string{LibraryBolt}),
				rounds(Handled, 2, []string{LibraryBolt, Typed}), rounds(Handled, 1, []string{LibraryLimited}),
				rounds(Expired, 1, []string{LibraryBolt, Typed, LibraryLimited}),
			), Streams: slices.Concat(
				// Long enough for a garbage collection of a heap of gigabytes, which is a part of the cost of its changes.
				streams(100, 200*time.Second, 1, LibraryBolt, Typed), streams(100, 20*time.Second, 1, LibraryLimited, Metadata),
				busy(streams(100, 20*time.Second, 2, LibraryBolt, Typed)),
			), Live: 4 * time.Second},
			{Name: "generated-1000000", Generated: 1_000_000},
			{Name: "pods-20000", Pods: 20_000, Rounds: rounds(FirstHandled, 1, []string{LibraryBolt, Typed})},
		},
	},
	// A quarter of an hour: the agent's Kubernetes API beside the kube-apiserver's. Each change reaches
	// 100 of the watches of a namespace, or all watches of all pods.
	"api": {
		Name: "api", Settle: 3 * time.Second,
		Stages: []Stage{{Name: "pods-20000", Pods: 20_000, API: &API{
			Idle: 5, Rounds: 5, Gets: 2_000, Watches: 1_000, Link: 20e6,
			Alone: Rate{100, 10 * time.Second}, Few: Rate{100, 20 * time.Second}, All: Rate{5, 8 * time.Second},
		}}},
	},
	// Ten minutes: a fleet of 1,000 nodes comes back to the two hubs of deploy/kustomize/hub, and a fiftieth of it
	// to the apiserver.
	"fleet": {
		Name: "fleet", Settle: 2 * time.Second,
		Stages: []Stage{{Name: "pods-20000", Pods: 20_000, Return: &Return{Nodes: 1_000, Listing: 20, Hubs: 2, Share: 0.02}}},
	},
	// Ten minutes: 50 nodes return after a restart of the apiserver.
	"return": {
		Name: "return", Settle: 2 * time.Second,
		Stages: []Stage{
			{Name: "kine", Restart: &Restart{Kine: true, Nodes: 50, ConfigMaps: 1_000, Services: 400, Rounds: 1, Share: 0.005}},
			{Name: "etcd", Pods: 50 * 24, Restart: &Restart{Nodes: 50, ConfigMaps: 1_000, Services: 400, Rounds: 2, Share: 0.005}},
		},
	},
	// Only checks that everything works. Its figures mean nothing.
	"smoke": {
		Name: "smoke", Settle: 100 * time.Millisecond,
		Stages: []Stage{
			{Name: "pods-100", Pods: 100, Rounds: slices.Concat(
				rounds(First, 1, allPeers), rounds(Restart0, 1, core), rounds(Restart1, 1, core),
			), API: &API{
				Idle: 1, Rounds: 1, Gets: 10, Watches: 10, Link: 1e9,
				Alone: Rate{100, time.Second / 2}, Few: Rate{100, time.Second / 2}, All: Rate{20, time.Second / 2},
			}},
			{Name: "mixed", Pods: 300, Others: 30, Rounds: slices.Concat(
				rounds(First, 1, allPeers), rounds(Restart0, 1, core), rounds(Restart1, 1, core), rounds(Restart10, 1, durable),
				rounds(Handled, 1, handlers), rounds(Expired, 1, core),
			), Streams: slices.Concat(streams(100, time.Second, 1, LibraryBolt, LibraryMemory, Typed, ControllerRuntime, Agent), together(100, time.Second, durable)),
				Fleets: []Fleet{{Nodes: 2, Rounds: 1}, {Nodes: 4, Rounds: 1}}},
		},
	},
}

// everything has all scenarios: n rounds of each, except for handled and expired.
func everything(n, handled, expired int) []Round {
	return slices.Concat(
		rounds(First, n, allPeers), rounds(Restart0, n, allPeers), rounds(Restart1, n, core), rounds(Restart10, n, core),
		rounds(Handled, handled, handlers), rounds(Expired, expired, core),
	)
}

// rounds returns n rounds of one scenario, each in another order.
func rounds(scenario string, n int, peers []string) []Round {
	all := make([]Round, n)
	for i := range all {
		from := i % len(peers)
		all[i] = Round{scenario, slices.Concat(peers[from:], peers[:from])}
	}
	return all
}

// streams returns n times the peers one after another, each time in another order.
func streams(rate float64, d time.Duration, n int, peers ...string) []Stream {
	var all []Stream
	for _, r := range rounds("", n, peers) {
		for _, p := range r.Peers {
			all = append(all, Stream{Rate: rate, Duration: d, Peers: []string{p}})
		}
	}
	return all
}

// busy returns the streams with loops beside them.
func busy(all []Stream) []Stream {
	for i := range all {
		all[i].Busy = true
	}
	return all
}

// together returns one stream with all peers at once, until the changes they received are durable.
// It measures bytes, which don't depend on other peers.
func together(rate float64, d time.Duration, peers []string) []Stream {
	return []Stream{{Rate: rate, Duration: d, Peers: peers, Durable: true}}
}
