package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// ErrStopped is in the error for a handler or an indexer that an informer which has
// stopped does not take. With it those errors read as client-go's do.
var ErrStopped = errors.New("it has stopped already")

// ProcessorOptions are the settings of a processor. Collection is needed.
type ProcessorOptions struct {
	// Name is the collection's name, for [cache.DoneChecker].
	Name string

	// Collection is what a handler gets first.
	Collection store.Collection

	// Decoding returns what makes the objects that handlers get, which share them
	// and must not change them. It is asked before an object is read, so that a
	// decoder with a memory knows which of two objects with one resourceVersion is
	// meant (see Options.Replaced). Nil gives them the *object.Object.
	Decoding func() Decode

	// OnError is told of an object that could not be read or decoded and so reached
	// no handler; nil for nobody.
	OnError func(error)

	// Resync is the period of handlers that ask for none of their own; 0 is never.
	Resync time.Duration

	// Clock is the time; nil is the real one.
	Clock clock.WithTicker
}

// Processor delivers notes to handlers: to each in order and at its own pace, as
// client-go's sharedProcessor does. It is safe for concurrent use.
type Processor struct {
	opts   ProcessorOptions
	synced chan struct{} // closed with the first complete list

	// mu is held while a batch becomes visible and its notes are handed out, so that
	// a handler that joins finds each change either in the store or among its notes.
	mu        sync.Mutex
	listeners map[*Registration]struct{}
	check     time.Duration // how often to look who is due for a resync; 0 is never
	started   bool
	stopped   bool
	wg        sync.WaitGroup
}

// NewProcessor returns a processor without handlers.
func NewProcessor(opts ProcessorOptions) *Processor {
	if opts.Decoding == nil {
		opts.Decoding = func() Decode { return func(o *object.Object) (any, error) { return o, nil } }
	}
	if opts.OnError == nil {
		opts.OnError = func(error) {}
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &Processor{
		opts: opts, check: opts.Resync, synced: make(chan struct{}), listeners: map[*Registration]struct{}{},
	}
}

// AddHandler subscribes a handler. Once the processor has started it gets every
// object of the collection, if that is synced, with isInInitialList true; then
// what changes. The error is the store's, or [ErrStopped].
func (p *Processor) AddHandler(h cache.ResourceEventHandler, opts cache.HandlerOptions) (*Registration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, fmt.Errorf("handler %v was not added to shared informer because %w", h, ErrStopped)
	}
	r := p.newRegistration(h, opts)
	if p.started {
		if err := p.start(r); err != nil {
			return nil, err
		}
	}
	p.listeners[r] = struct{}{}
	return r, nil
}

// RemoveHandler ends a subscription. What was not delivered is dropped; a call
// that is going on is not waited for ([Registration.ShutdownChan] is).
func (p *Processor) RemoveHandler(r *Registration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.listeners[r]; ok {
		delete(p.listeners, r)
		r.end()
	}
}

// Start gives the handlers their initial lists and begins to deliver. After an
// error it can be called again.
func (p *Processor) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.listeners {
		if err := p.start(r); err != nil {
			return err
		}
	}
	p.started = true
	if p.opts.Collection.State().Synced {
		p.setSynced()
	}
	return nil
}

// start starts one handler. The caller holds the lock.
func (p *Processor) start(r *Registration) error {
	if r.running {
		return nil
	}
	v, err := p.opts.Collection.View()
	if err != nil {
		return err
	}
	defer v.Close()
	synced := v.State().Synced
	if synced {
		var keys []string
		if err := p.keys(v, func(key string) { keys = append(keys, key) }); err != nil {
			return err
		}
		for _, key := range keys {
			r.add(note{kind: noteAdd, key: key, new: &value{key: key}, initial: true})
		}
	}
	if synced {
		r.tracker.UpstreamHasSynced()
	}
	r.running = true
	p.wg.Go(r.run)
	return nil
}

// keys calls each with every key that can be read.
func (p *Processor) keys(v store.View, each func(string)) error {
	for h, err := range v.Headers("", "") {
		switch {
		case err == nil:
			each(h.Key)
		case errors.As(err, new(*store.CorruptionError)):
			p.opts.OnError(err)
		default:
			return err
		}
	}
	return nil
}

// Stop ends all subscriptions and waits for the handlers to return.
func (p *Processor) Stop() {
	p.mu.Lock()
	p.stopped = true
	for r := range p.listeners {
		r.end()
	}
	clear(p.listeners)
	p.mu.Unlock()
	p.wg.Wait()
}

// commit makes a batch visible by apply and hands out its notes. Between the two
// no handler joins.
func (p *Processor) commit(notes []note, apply func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range notes {
		if n.old == nil {
			continue
		}
		for r := range p.listeners {
			r.pin(n.old)
		}
	}
	if err := apply(); err != nil {
		return err
	}
	for r := range p.listeners {
		for _, n := range notes {
			r.add(n)
		}
	}
	if p.opts.Collection.State().Synced {
		p.setSynced()
	}
	return nil
}

// setSynced tells once that there is a complete list. The caller holds the lock.
func (p *Processor) setSynced() {
	if p.hasSynced() {
		return
	}
	close(p.synced)
	for r := range p.listeners {
		r.tracker.UpstreamHasSynced()
	}
}

func (p *Processor) hasSynced() bool {
	select {
	case <-p.synced:
		return true
	default:
		return false
	}
}

// resyncs runs Resync whenever a handler may be due, until ctx ends.
func (p *Processor) resyncs(ctx context.Context) {
	p.mu.Lock()
	check := p.check // fixed by now: a handler that joins later adapts to it
	p.mu.Unlock()
	if check == 0 {
		return
	}
	ticker := p.opts.Clock.NewTicker(check)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := p.Resync(); err != nil {
				p.opts.OnError(fmt.Errorf("resync: %w", err))
			}
		}
	}
}
