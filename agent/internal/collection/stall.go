package collection

import "time"

const (
	// stallIntervals is how many intervals of the watchdog a batch may be on its way into the
	// store without a sign of life while nothing else is written either.
	stallIntervals = 3

	// stallIntervalsBeside is the same while other things are written.
	stallIntervalsBeside = 15
)

// StallDetector finds a collection whose changes do not reach the store. The zero value is ready. It
// is not safe for concurrent use.
type StallDetector struct {
	writes int64     // of the store
	wrote  time.Time // when that last changed
}

// Stalled returns the ID of a collection whose changes do not reach the store without a known reason,
// "" if there is none. A wait for the server is no stall, nor is a store that refuses changes and is
// retried, as on a full disk, nor one that takes long and writes. writes is the total of the store's
// writes so far, interval that of the watchdog.
func (d *StallDetector) Stalled(now time.Time, interval time.Duration, writes int64, collections []*Collection) string {
	if d.wrote.IsZero() || writes != d.writes {
		d.writes, d.wrote = writes, now
	}
	limit := stallIntervals * interval
	if now.Sub(d.wrote) < limit {
		limit = stallIntervalsBeside * interval
	}
	for _, c := range collections {
		if c.Tracker.progress.idleFor() >= limit {
			return c.ID
		}
	}
	return ""
}
