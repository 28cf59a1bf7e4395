package peer

import (
	"fmt"
	"strings"
	"time"
)

// The commands.
const (
	// Contents asks for what is cached. It is for after the measurement: it costs.
	Contents = "contents"
	// Delays asks for the delays since the last time that it was asked.
	Delays = "delays"
	// Reset forgets the changes so far, also those that are not durable yet.
	Reset = "reset"
)

// The events.
const (
	Read   = "read"    // the first correct read
	InStep = "in-step" // everything is as the server has it
)

// Event is what a peer tells; its name is one of the constants.
type Event struct {
	Event string    `json:"event"`
	At    time.Time `json:"at"`

	// Contents has the content of each resource.
	Contents map[string]Content `json:"contents,omitempty"`

	// Handled are the seconds from a change, as [Stamp] says, to the handler's call,
	// Durable those to the commit that made it durable, as far as there was one.
	Handled []float64 `json:"handled,omitempty"`
	Durable []float64 `json:"durable,omitempty"`
}

// Stamp is the annotation that has the time of a change, in nanoseconds since 1970.
const Stamp = "bench.example.com/at"

// Mark is a version of an object, which proves something when it is there.
type Mark struct {
	Resource string // as Resources names it
	Key      string // "namespace/name"
	RV       string // the object's own
}

// String writes a mark as ParseMark reads it.
func (m Mark) String() string { return m.Resource + "=" + m.Key + "@" + m.RV }

// ParseMark reads "pods=shop-0001/cart@123".
func ParseMark(s string) (Mark, error) {
	resource, rest, _ := strings.Cut(s, "=")
	key, rv, ok := strings.Cut(rest, "@")
	if !ok || resource == "" || key == "" || rv == "" {
		return Mark{}, fmt.Errorf("mark %q: want RESOURCE=KEY@RV", s)
	}
	return Mark{resource, key, rv}, nil
}
