package clocks

import (
	"math"
	"time"
)

// UnknownSeconds stands for an unknown age where a number of seconds is needed, so that a program that
// compares it with a limit takes it for too old. In the header Age it is the largest number that a cache
// has to know (RFC 9111, 1.2.2).
const UnknownSeconds = 1 << 31

// Stamp is a time by both clocks.
type Stamp struct {
	// At is by the wall clock. Within the process it also has the monotonic reading, unless it was
	// stored, encoded or converted (UTC, Round, Truncate).
	At time.Time

	// Ran is how long the process, or the file that has the stamp, had been in use. A stamp from before
	// that was counted has 0.
	Ran time.Duration
}

// Age is how long ago something was. The zero Age is unknown.
type Age struct {
	ran   time.Duration // that have passed for certain
	wall  time.Duration // by the wall clock
	known bool
}

// AgeOf returns the age of a stamp. It is unknown if the stamp has no time, or one that is after now: then
// the clock is wrong now, or was when the stamp was made. Two times of this process are compared by their
// monotonic readings.
func AgeOf(s, now Stamp) Age {
	a := Age{ran: max(0, now.Ran-s.Ran), wall: now.At.Sub(s.At)}
	a.known = !s.At.IsZero() && a.wall >= 0
	return a
}

// Known reports whether the age is known.
func (a Age) Known() bool { return a.known }

// Duration returns the age or, if that is unknown, the time that has passed at least.
func (a Age) Duration() time.Duration {
	if !a.known {
		return a.ran
	}
	return max(a.wall, a.ran)
}

// Seconds returns the age in seconds, infinite if it is unknown.
func (a Age) Seconds() float64 {
	if !a.known {
		return math.Inf(1)
	}
	return a.Duration().Seconds()
}

// AtMost reports whether the age is known, and not above a limit: whether something is fresh enough.
func (a Age) AtMost(limit time.Duration) bool { return a.known && a.Duration() <= limit }
