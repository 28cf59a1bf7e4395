package kubeapi

import (
	"context"
	"sync"
)

// probes combines the probes of a collection: requests for a probe while one is in flight share the
// next one. They can't share the one in flight, which the server may have answered before they
// were asked for. It is safe for concurrent use.
type probes struct {
	mu      sync.Mutex
	running bool
	next    *probe // follows the one in flight; nil if no caller waits for it
}

// probe is one question to the server.
type probe struct {
	ctx     context.Context
	cancel  context.CancelFunc // once no caller waits
	callers int
	done    chan struct{} // closed when rv and err are set
	rv      string
	err     error
}

// get returns the resourceVersion of a probe that begins after the call. A probe outlives the caller
// that it was begun for, but not the last one.
func (p *probes) get(ctx context.Context, ask func(context.Context) (string, error)) (string, error) {
	x := p.join(ctx, ask)
	select {
	case <-x.done:
		return x.rv, x.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.callers--; x.callers == 0 {
		x.cancel()
		if p.next == x {
			p.next = nil
		}
	}
	return "", ctx.Err()
}

func (p *probes) join(ctx context.Context, ask func(context.Context) (string, error)) *probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = &probe{done: make(chan struct{})}
		p.next.ctx, p.next.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	x := p.next
	x.callers++
	if !p.running {
		p.running, p.next = true, nil
		go p.run(x, ask)
	}
	return x
}

// run asks for x, and for its successors as long as there are any.
func (p *probes) run(x *probe, ask func(context.Context) (string, error)) {
	for x != nil {
		ctx, cancel := context.WithTimeout(x.ctx, probeLimit)
		x.rv, x.err = ask(ctx)
		cancel()
		x.cancel()
		close(x.done)
		p.mu.Lock()
		x, p.next = p.next, nil
		p.running = x != nil
		p.mu.Unlock()
	}
}
