package collection

import "time"

const (
	// stallIntervals is how many intervals of the watchdog a batch may take without a sign of life
	// while the store writes nothing else.
	stallIntervals = 3

	// stallIntervalsBeside is the same limit while the store writes other changes.
	stallIntervalsBeside = 15
)

// StallDetector finds a collection whose changes do not reach the store. The zero value is ready. It
// is not safe for concurrent use.
type StallDetector struct {
	writes int64     // the total at the last call
	wrote  time.Time // when writes last changed
}

// Stalled returns the ID of a collection whose changes do not reach the store for an unknown
// reason, "" if there is none. A wait for the server is no stall, nor are retries on a store that
// refuses changes, as on a full disk, nor a slow store that still writes. writes is the total of
// the store's writes so far, interval the watchdog's.
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
