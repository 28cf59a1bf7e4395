package peer

import (
	"fmt"
	"strings"
	"time"
)

// The commands.
const (
	// Contents asks for the cached content, after the measurement: it costs CPU.
	Contents = "contents"
	// Delays asks for the delays since the last time.
	Delays = "delays"
	// Reset clears the changes so far, also if they are not durable yet.
	Reset = "reset"
)

// The events.
const (
	Read     = "read"      // the first correct read
	CaughtUp = "caught-up" // everything is equal to the server's state
	Handled  = "handled"   // the handlers have received every object; only of a peer with handlers
)

// Event is sent by a peer. Its name is one of the constants.
type Event struct {
	Event string    `json:"event"`
	At    time.Time `json:"at"`

	// Contents has the content of each resource.
	Contents map[string]Content `json:"contents,omitempty"`
	Lists    int                `json:"lists,omitempty"` // complete lists so far, as far as they are counted

	// Handled are the seconds from each change, by its [Stamp], to the handler's call. Durable are
	// the seconds to the commit that made it durable, if there was one.
	Handled []float64 `json:"handled,omitempty"`
	Durable []float64 `json:"durable,omitempty"`

	Collector Collector `json:"collector"`
}

// Collector is the CPU time of Go's garbage collector and of the whole process since its start, in seconds, as
// runtime/metrics estimates them.
type Collector struct {
	Collector float64 `json:"collector"`
	Process   float64 `json:"process"`
}

// Share returns the collector's part of the time since an earlier state; 0 if no time is known.
func (c Collector) Share(since Collector) float64 {
	if c.Process <= since.Process {
		return 0
	}
	return (c.Collector - since.Collector) / (c.Process - since.Process)
}

// Stamp is the annotation with the time of a change, in nanoseconds since 1970.
const Stamp = "bench.example.com/at"

// Mark is a version of an object that proves, by being cached, how far a cache has come.
type Mark struct {
	Resource string // a name in Resources
	Key      string // "namespace/name"
	RV       string // the object's own
}

// String returns a mark in the form of ParseMark.
func (m Mark) String() string { return m.Resource + "=" + m.Key + "@" + m.RV }

// ParseMark parses "pods=shop-0001/cart@123".
func ParseMark(s string) (Mark, error) {
	resource, rest, _ := strings.Cut(s, "=")
	key, rv, ok := strings.Cut(rest, "@")
	if !ok || resource == "" || key == "" || rv == "" {
		return Mark{}, fmt.Errorf("mark %q: want RESOURCE=KEY@RV", s)
	}
	return Mark{resource, key, rv}, nil
}
