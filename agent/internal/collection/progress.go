package collection

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
)

// progress measures the time since the last sign of life of a task that has to end: a batch on its
// way from the queue into the store, or a lookup of the resource. It is safe for concurrent use.
type progress struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	since time.Time // time of the newest sign of life; zero if no task is in progress
}

// begin notes the start of a task.
func (p *progress) begin() { p.set(p.clock.Now()) }

// end notes that no task is in progress.
func (p *progress) end() { p.set(time.Time{}) }

func (p *progress) set(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = since
}

// touch notes a retry, which is a sign of life, of the task in progress.
func (p *progress) touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.since.IsZero() {
		p.since = p.clock.Now()
	}
}

// idleFor returns the time since the last sign of life of the task in progress, 0 if there is none.
func (p *progress) idleFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return 0
	}
	return p.clock.Since(p.since)
}

// around marks a batch as in progress while the loop handles it.
func (p *progress) around(_ deltafifo.Batch, apply func() error) error {
	p.begin()
	defer p.end()
	return apply()
}
