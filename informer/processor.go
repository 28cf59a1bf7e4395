package informer

import (
	"errors"
	"sync"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/buffer"

	"github.com/snapcache/snapcache/store"
)

type noteKind int

const (
	noteAdd noteKind = iota
	noteUpdate
	noteDelete
)

// note is one call of a handler.
type note struct {
	kind     noteKind
	old, new any
	initial  bool
}

// Processor delivers notes to handlers: to each in order and at its own pace, as
// client-go's sharedProcessor does. It is safe for concurrent use.
type Processor struct {
	mu        sync.Mutex // also orders AddHandler against distribute
	listeners map[*Registration]struct{}
	wg        sync.WaitGroup
	stopped   bool
}

// NewProcessor returns a processor without handlers.
func NewProcessor() *Processor {
	return &Processor{listeners: map[*Registration]struct{}{}}
}

// Registration is one handler's subscription.
type Registration struct {
	handler cache.ResourceEventHandler

	mu      sync.Mutex
	changed *sync.Cond
	pending *buffer.TypedRingGrowing[note] // grows with what the handler has not taken
	initial int                            // initial notes that were not delivered
	ended   bool
}

// listenerBuffer is the first size of a handler's ring; it grows as needed.
const listenerBuffer = 128

// AddHandler subscribes a handler. It first gets every object of c, if c is
// synced, with isInInitialList true; then what changes.
//
// No batch may be distributed between reading c and subscribing, or the handler
// would miss it or get it twice; so the processor's lock is held meanwhile.
func (p *Processor) AddHandler(h cache.ResourceEventHandler, c store.Collection) (*Registration, error) {
	r := &Registration{handler: h, pending: buffer.NewTypedRingGrowing[note](buffer.RingGrowingOptions{InitialSize: listenerBuffer})}
	r.changed = sync.NewCond(&r.mu)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, store.ErrClosed
	}
	v, err := c.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	if v.State().Synced {
		for o, err := range v.Objects("", "") {
			if errors.As(err, new(*store.CorruptionError)) {
				continue // it comes as an add when it can be read again
			}
			if err != nil {
				return nil, err
			}
			r.add(note{kind: noteAdd, new: o, initial: true})
		}
	}
	p.listeners[r] = struct{}{}
	p.wg.Go(r.run)
	return r, nil
}

// RemoveHandler ends a subscription. What was not delivered is dropped.
func (p *Processor) RemoveHandler(r *Registration) {
	p.mu.Lock()
	delete(p.listeners, r)
	p.mu.Unlock()
	r.end()
}

// Stop ends all subscriptions and waits for the handlers to return.
func (p *Processor) Stop() {
	p.mu.Lock()
	p.stopped = true
	for r := range p.listeners {
		r.end()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Processor) distribute(notes []note) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.listeners {
		for _, n := range notes {
			r.add(n)
		}
	}
}

// HasSynced says that the handler was given the whole initial list. It tells
// nothing about a collection that was not synced when the handler was added.
func (r *Registration) HasSynced() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.initial == 0
}

func (r *Registration) add(n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending.WriteOne(n)
	if n.initial {
		r.initial++
	}
	r.changed.Signal()
}

func (r *Registration) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.changed.Signal()
}

// run delivers notes until the subscription ends.
func (r *Registration) run() {
	for {
		n, ok := r.next()
		if !ok {
			return
		}
		switch n.kind {
		case noteAdd:
			r.handler.OnAdd(n.new, n.initial)
		case noteUpdate:
			r.handler.OnUpdate(n.old, n.new)
		case noteDelete:
			r.handler.OnDelete(n.old)
		}
		if n.initial {
			r.mu.Lock()
			r.initial--
			r.mu.Unlock()
		}
	}
}

func (r *Registration) next() (note, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.ended {
			return note{}, false
		}
		if n, ok := r.pending.ReadOne(); ok {
			return n, true
		}
		r.changed.Wait()
	}
}
