package collection

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
)

// progress measures the time since the last sign of life of a task that has to end: a batch on its
// way from the queue into the store, or a lookup of the resource. Only one goroutine at a time has
// a task; idleFor is safe for concurrent use.
type progress struct {
	clock clock.PassiveClock
	since atomic.Pointer[time.Time] // the newest sign of life; nil if no task is in progress
}

// begin notes the start of a task.
func (p *progress) begin() {
	now := p.clock.Now()
	p.since.Store(&now)
}

// end notes that no task is in progress.
func (p *progress) end() { p.since.Store(nil) }

// touch notes a retry, which is a sign of life, of the task in progress.
func (p *progress) touch() {
	if p.since.Load() != nil {
		p.begin()
	}
}

// idleFor returns the time since the last sign of life of the task in progress, 0 if there is none.
func (p *progress) idleFor() time.Duration {
	if since := p.since.Load(); since != nil {
		return p.clock.Since(*since)
	}
	return 0
}

// around marks a batch as in progress while the loop handles it.
func (p *progress) around(_ deltafifo.Batch, apply func() error) error {
	p.begin()
	defer p.end()
	return apply()
}

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
