package collection

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
)

// progress measures the time since the last sign of life of a task that has to end: a batch on its
// way from the queue into the store, or a lookup of the resource. It is safe for concurrent use.
type progress struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	since time.Time // time of the newest sign of life; zero if no task is in progress
}

// begin notes the start of a task.
func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = p.clock.Now()
}

// end notes that no task is in progress.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
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

// trackedQueue is a queue whose batches are in progress until the next one is asked for.
type trackedQueue struct {
	*deltafifo.Queue
	progress *progress
}

// PopBatch implements informer.Queue.
func (q trackedQueue) PopBatch(ctx context.Context) (deltafifo.Batch, error) {
	q.progress.end()
	b, err := popBatch(ctx, q.Queue)
	q.progress.begin()
	hang()
	if err != nil {
		q.progress.end()
	}
	return b, err
}

// trackedObserver is a tracker for which each try of a store that refuses changes is a sign of life.
type trackedObserver struct {
	*Tracker
	progress *progress
}

var _ informer.Observer = trackedObserver{}

// StoreFailed implements informer.Observer.
func (o trackedObserver) StoreFailed(err error) {
	o.progress.touch()
	o.Tracker.StoreFailed(err)
}
