// Package clockstest has a wrong clock for tests.
package clockstest

import (
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// Moved is a wall clock that is off, and can be set while the monotonic one goes on. It is not safe for
// concurrent changes.
type Moved struct {
	clock.RealClock
	Off time.Duration
}

// Now returns the moved time, with the right monotonic reading.
func (c *Moved) Now() time.Time {
	t := time.Now()
	moved := t.Add(c.Off)
	// Add moves both readings of a time; the monotonic one is the second word.
	(*[2]uint64)(unsafe.Pointer(&moved))[1] = (*[2]uint64)(unsafe.Pointer(&t))[1]
	return moved
}

// Since returns the time since t, by the monotonic readings if t has one.
func (c *Moved) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
