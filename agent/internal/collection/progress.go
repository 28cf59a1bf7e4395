package collection

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
)

// progress measures for how long a batch has been on its way from the queue into the store without a
// sign of life. It is safe for concurrent use.
type progress struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	since time.Time // of the newest sign of life of the batch that is on its way; zero for none
}

// begin notes that something was begun that has to come to an end.
func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = p.clock.Now()
}

// end notes that nothing is on its way.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
}

// touch notes a retry of what was begun.
func (p *progress) touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.since.IsZero() {
		p.since = p.clock.Now()
	}
}

// idleFor returns the time since the last sign of life of what was begun, 0 if nothing was.
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
