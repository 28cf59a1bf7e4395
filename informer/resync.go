package informer

import (
	"time"

	"k8s.io/klog/v2"
)

// minResync is the shortest resync period, the same as client-go's.
const minResync = time.Second

// Resync calls OnUpdate of the handlers whose period has passed, with each stored object as old and
// new. A handler that is still getting its initial list, or the previous resync, is left out.
func (p *Processor) Resync() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.opts.Clock.Now()
	var due []*Registration
	for r := range p.listeners {
		if r.resync > 0 && !now.Before(r.next) {
			r.next = now.Add(r.resync)
			if !r.getsAll() {
				due = append(due, r)
			}
		}
	}
	if len(due) == 0 || !p.started {
		return nil
	}
	l, err := p.allLocked()
	if err != nil {
		return err
	}
	for _, r := range due {
		r.add(note{kind: noteResync, listing: l})
	}
	return nil
}

// setResyncLocked sets a new handler's period. Before the start, the shortest requested period
// becomes the check period; later handlers get no shorter one.
func (p *Processor) setResyncLocked(r *Registration, logger klog.Logger, period time.Duration) {
	if period > 0 && period < minResync {
		logger.Info("resync period is too short, using the least there is", "period", period, "least", minResync)
		period = minResync
	}
	if period > 0 && period < p.check && !p.started {
		p.check = period
		for other := range p.listeners {
			other.resync = adapt(logger, other.requested, p.check)
		}
	}
	r.requested, r.resync = period, adapt(logger, period, p.check)
	r.next = p.opts.Clock.Now().Add(r.resync)
}

// adapt rounds a handler's resync period up to the informer's check period; 0 is no resync.
func adapt(logger klog.Logger, period, check time.Duration) time.Duration {
	switch {
	case period == 0:
		return 0
	case check == 0:
		logger.Info("no resyncs for this handler: the informer was made without", "period", period)
		return 0
	case period < check:
		logger.Info("resync period is shorter than the informer's, using that", "period", period, "informer", check)
		return check
	}
	return period
}
