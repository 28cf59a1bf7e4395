package agent

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
)

// pulse is whether what a collection has taken from its queue gets into the store. It is
// safe for concurrent use.
type pulse struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	since time.Time // of the newest sign of life of the batch that is on its way; zero for none
}

// begin says that something was begun that has to come to an end.
func (p *pulse) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = p.clock.Now()
}

// end says that it came to one.
func (p *pulse) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
}

// beat says that it is still being tried.
func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.since.IsZero() {
		p.since = p.clock.Now()
	}
}

// silence is for how long nothing was heard of what was begun, 0 where nothing is.
func (p *pulse) silence() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return 0
	}
	return p.clock.Since(p.since)
}

// beating is a queue whose batches are followed until the next one is asked for.
type beating struct {
	*deltafifo.Queue
	pulse *pulse
}

// PopBatch implements informer.Queue.
func (q beating) PopBatch(ctx context.Context) (deltafifo.Batch, error) {
	q.pulse.end()
	b, err := popBatch(ctx, q.Queue)
	q.pulse.begin()
	hang()
	if err != nil {
		q.pulse.end()
	}
	return b, err
}

// pulsing is a tracker that takes each try of a store that refuses changes for a sign of
// life.
type pulsing struct {
	*tracker
	pulse *pulse
}

var _ informer.Observer = pulsing{}

// StoreFailed implements informer.Observer.
func (p pulsing) StoreFailed(err error) {
	p.pulse.beat()
	p.tracker.StoreFailed(err)
}
