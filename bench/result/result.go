// Package result defines the results of a run of the benchmarks, as they are stored in a file.
package result

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/snapcache/snapcache/bench/measure"
)

// Run is one run on one machine.
type Run struct {
	Command  string            `json:"command"`
	Note     string            `json:"note,omitempty"` // about the conditions of the run
	Started  time.Time         `json:"started"`
	Ended    time.Time         `json:"ended"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of the measured programs, by name
	Stages   []Stage           `json:"stages"`
}

// Machine describes the machine of a run.
type Machine struct {
	CPUs        int    `json:"cpus"`
	Model       string `json:"model"`
	MemoryBytes int64  `json:"memoryBytes"`
	Kernel      string `json:"kernel"`
	Platform    string `json:"platform"`
	Go          string `json:"go"`
}

// Stage is the measurements on one control plane with one set of objects.
type Stage struct {
	Name      string         `json:"name"`
	Objects   int            `json:"objects"`
	JSONBytes int64          `json:"jsonBytes"` // of all objects as the server sends them
	Resources map[string]int `json:"resources"` // objects of each
	// IdleCPU is the load of the apiserver without clients, in CPU seconds per second. It is
	// already subtracted from the turns.
	IdleCPU float64  `json:"idleCPU"`
	Turns   []Turn   `json:"turns,omitempty"`
	Streams []Stream `json:"streams,omitempty"`
	Fleets  []Fleet  `json:"fleets,omitempty"`
	API     []Figure `json:"api,omitempty"`
	Live    []Figure `json:"live,omitempty"` // reads without a cache
	Returns []Return `json:"returns,omitempty"`

	Restarts []Restart `json:"restarts,omitempty"`
}

// Figure has the measurements of one property of a server's Kubernetes API.
type Figure struct {
	What   string    `json:"what"`
	Of     string    `json:"of"`
	Unit   string    `json:"unit"` // "s" or "B"; empty for a number
	Values []float64 `json:"values"`
}

// Cost is the cost of one start of a process, until some time after it was caught up.
type Cost struct {
	ReadSeconds     float64 `json:"readSeconds"`     // from the start of the process to the first correct read
	CaughtUpSeconds float64 `json:"caughtUpSeconds"` // and to the last change at the server

	HandledSeconds float64 `json:"handledSeconds,omitempty"` // and until handlers had received every object
	// CPU seconds of the client until it was caught up, and until the end of the measurement.
	CaughtUpCPU float64 `json:"caughtUpCPU"`
	SettledCPU  float64 `json:"settledCPU"`
	ServerCPU   float64 `json:"serverCPU"` // of the apiserver, until the end of the measurement, without its idle load
	measure.Traffic
	measure.Memory // at the end
	// PeakOwn is the highest [measure.Memory.Own], looked at every few milliseconds.
	PeakOwn int64 `json:"peakOwnBytes,omitempty"`
	// Collector is the share of Go's garbage collector in the CPU time of the client, until it was caught up and, with
	// handlers, until these had received every object.
	Collector    float64 `json:"collector,omitempty"`
	WrittenBytes int64   `json:"writtenBytes"`
	DiskBytes    int64   `json:"diskBytes"` // of all its files, at the end
}

// Turn is one start of one peer.
type Turn struct {
	Scenario string `json:"scenario"`
	Peer     string `json:"peer"`
	Round    int    `json:"round"`
	Changed  int    `json:"changed"` // objects that were changed since the peer's last turn
	Cost
}

// Stream is a peer that follows objects changed at a rate.
type Stream struct {
	Peer    string  `json:"peer"`
	Round   int     `json:"round"`
	Rate    float64 `json:"rate"` // changes per second, as requested
	Seconds float64 `json:"seconds"`
	Changes int     `json:"changes"`
	Beside  int     `json:"beside,omitempty"` // peers that followed the same changes meanwhile
	Busy    bool    `json:"busy,omitempty"`   // with a loop for each CPU beside it
	// Seconds from sending a change to the server to the handler's call, and to the commit that
	// made it durable.
	Handled Delay `json:"handled"`
	Durable Delay `json:"durable"`

	CPU          float64 `json:"cpu"` // seconds, of the client
	WrittenBytes int64   `json:"writtenBytes"`
	Collector    float64 `json:"collector,omitempty"`    // share of Go's garbage collector in the client's CPU time
	PeakOwn      int64   `json:"peakOwnBytes,omitempty"` // as in [Cost]
}

// Delay summarises delays, in seconds.
type Delay struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
}

// DelayOf returns percentiles of seconds.
func DelayOf(seconds []float64) Delay {
	return Delay{len(seconds), measure.Percentile(seconds, 50), measure.Percentile(seconds, 99)}
}

// Fleet is many nodes that start at once against one apiserver, in one process.
type Fleet struct {
	Scenario string         `json:"scenario"`
	Peer     string         `json:"peer"`
	Round    int            `json:"round"`
	Nodes    int            `json:"nodes"`
	Requests map[string]int `json:"requests"` // requests that the apiserver answered or still answers, by verb
	Cost
}

// Return is nodes that come back at once after an outage. The traffic in Cost is the apiserver's.
type Return struct {
	Way      string          `json:"way"`
	Changed  int             `json:"changed"` // objects, during the outage
	Nodes    int             `json:"nodes"`
	Lists    int             `json:"lists"`          // complete lists, as far as they are counted
	Requests map[string]int  `json:"requests"`       // that the apiserver answered or still answers, by kind
	Wire     measure.Traffic `json:"wire"`           // between the nodes and their servers
	Hubs     []Hub           `json:"hubs,omitempty"` // that the nodes followed
	Idle     float64         `json:"idleCPU"`        // of the apiserver, as in a stage
	Cost
}

// Restart is the return of nodes after a restart of the apiserver, until all are current and have settled.
type Restart struct {
	Way       string          `json:"way"`
	Round     int             `json:"round"`
	Nodes     int             `json:"nodes"`
	Changed   int             `json:"changed"`   // objects, meanwhile
	Seconds   float64         `json:"seconds"`   // until all nodes had all objects
	Lists     int             `json:"lists"`     // complete lists of agents
	Requests  map[string]int  `json:"requests"`  // by verb, open watches included
	Wire      measure.Traffic `json:"wire"`      // between the nodes and the apiserver
	ServerCPU float64         `json:"serverCPU"` // seconds, without the idle load
	CPU       float64         `json:"cpu"`       // seconds of all nodes
}

// Hub is the cost of one hub for the return of its nodes.
type Hub struct {
	Nodes  int            `json:"nodes"`
	CPU    float64        `json:"cpu"`    // seconds
	Before measure.Memory `json:"before"` // the return
	After  measure.Memory `json:"after"`  // when all nodes had caught up
}

// Write writes v to a file as JSON, atomically.
func Write(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return WriteFile(path, append(b, '\n'))
}

// WriteFile writes a file atomically.
func WriteFile(path string, b []byte) error {
	partial := path + ".partial"
	if err := os.WriteFile(partial, b, 0o644); err != nil { //nolint:gosec // documentation
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Read reads a file written by Write.
func Read(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
