// Package clockstest has a wrong clock for tests.
package clockstest

import (
	"sync"
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// Moved is a wall clock that is off, and can be set while the monotonic one goes on. Off is not safe for
// concurrent changes; Set is.
type Moved struct {
	clock.RealClock
	mu  sync.Mutex
	Off time.Duration
}

// Set sets Off.
func (c *Moved) Set(off time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Off = off
}

// The first word of a time with a monotonic reading, which is the second word: a bit, the seconds since
// 1885 by the wall clock, and the nanoseconds.
const (
	hasMonotonic = 1 << 63
	nanosBits    = 30
)

var since1885 = -time.Date(1885, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()

// Now returns the moved time, with the right monotonic reading: also in a bubble of testing/synctest,
// where other times have none.
func (c *Moved) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.Now()
	moved := t.Add(c.Off)
	from, to := (*[2]uint64)(unsafe.Pointer(&t)), (*[2]uint64)(unsafe.Pointer(&moved))
	if from[0]&hasMonotonic != 0 {
		to[1] = from[1] // Add has moved it too
		return moved
	}
	*to = [2]uint64{
		hasMonotonic | uint64(moved.Unix()+since1885)<<nanosBits | uint64(moved.Nanosecond()), //nolint:gosec // not negative
		uint64(t.UnixNano()), //nolint:gosec // not negative
	}
	return moved
}

// Since returns the time since t, by the monotonic readings if t has one.
func (c *Moved) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
