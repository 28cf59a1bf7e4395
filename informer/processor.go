package informer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/internal/spool"
	"github.com/snapcache/snapcache/internal/synced"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// ErrStopped means that a handler or an indexer was added to a stopped informer. Its text is
// client-go's.
var ErrStopped = errors.New("it has stopped already")

// Readable is a collection for readers.
type Readable interface {
	State() store.State
	View() (store.View, error)
}

// ProcessorOptions are the settings of a processor. Collection is needed.
type ProcessorOptions struct {
	Name       string   // the collection's name, for [cache.DoneChecker]
	Collection Readable // has the objects that a handler gets first

	// Decoding returns the function that decodes objects for the handlers, which share the results
	// and must not change them. It is called before an object is read, so that a decoder with a
	// cache does not confuse two objects with the same resourceVersion (see pipeline.LoopOptions.Replaced). If
	// it is nil, handlers get the *object.Object.
	// With keep the objects are likely to be read next: the newest states, one by one.
	Decoding func(keep bool) Decode

	// OnError gets the error of each object that could not be read or decoded and so reached no
	// handler; nil for none.
	OnError func(error)

	Resync time.Duration // resync period of handlers without a period of their own; 0 is never

	// SpoolDir is the directory of temporary files, for the states before a list's changes; empty is
	// os.TempDir.
	SpoolDir string
}

// Processor is a pipeline.Sink that delivers changes to handlers: to each in order and at its own pace, as
// client-go's sharedProcessor does. It is safe for concurrent use.
type Processor struct {
	opts     ProcessorOptions
	listings *listings
	synced   *synced.Tracker // done when the first complete list is stored

	// mu is held while a batch becomes visible and its changes are handed out, so that a new handler
	// finds each change either in the store or in its backlog.
	mu        sync.Mutex
	listeners map[*Registration]struct{}
	check     time.Duration // time between two checks for handlers that are due for a resync; 0 is never
	started   bool
	stopped   bool
	held      <-chan struct{} // nothing is synced before it is closed; nil for no such wait
	backlog   *spool.Records  // has the objects of changes while a handler is late; nil for none
	wg        sync.WaitGroup
}

// NewProcessor returns a processor without handlers.
func NewProcessor(opts ProcessorOptions) *Processor {
	if opts.Decoding == nil {
		opts.Decoding = func(bool) Decode { return func(o *object.Object) (any, error) { return o, nil } }
	}
	if opts.OnError == nil {
		opts.OnError = func(error) {}
	}
	p := &Processor{
		opts: opts, check: opts.Resync, synced: synced.New(opts.Name), listeners: map[*Registration]struct{}{},
	}
	p.listings = &listings{
		collection: opts.Collection, decoding: opts.Decoding, wg: &p.wg, loading: make(chan struct{}, runtime.GOMAXPROCS(0)),
		open: map[*listing]struct{}{}, recent: lru.New(recentChunks),
	}
	return p
}

// AddHandler subscribes a handler. Once the processor has started, the handler gets every object of
// the collection, if that is synced, with isInInitialList true; then the changes. The error is the
// store's, or [ErrStopped].
func (p *Processor) AddHandler(h cache.ResourceEventHandler, opts cache.HandlerOptions) (*Registration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, fmt.Errorf("handler %v was not added to shared informer because %w", h, ErrStopped)
	}
	r := p.newRegistration(h, opts)
	if p.started {
		if err := p.startLocked(r); err != nil {
			return nil, err
		}
	}
	p.listeners[r] = struct{}{}
	return r, nil
}

// RemoveHandler ends a subscription. It drops undelivered changes, and does not wait for a call in
// progress; see [Registration.ShutdownChan] for that.
func (p *Processor) RemoveHandler(r *Registration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.listeners[r]; ok {
		delete(p.listeners, r)
		r.end()
	}
}

// Hold keeps the informer and its handlers from being synced until a channel is closed; nil for none. It
// is called before Start.
func (p *Processor) Hold(until <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = until
}

// release marks the informer and its handlers as synced, if the collection is, once nothing holds that. It
// returns then, or when ctx ends.
func (p *Processor) release(ctx context.Context) {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-held:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.setSyncedLocked()
	}
}

// Start gives the handlers their initial lists and begins to deliver. After an error it can be called
// again.
func (p *Processor) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.listeners {
		if err := p.startLocked(r); err != nil {
			return err
		}
	}
	p.started = true
	p.setSyncedLocked()
	return nil
}

// startLocked begins to deliver to one handler.
func (p *Processor) startLocked(r *Registration) error {
	if r.running {
		return nil
	}
	if p.opts.Collection.State().Synced {
		if err := p.listLocked(r); err != nil {
			return err
		}
		if !p.holdsLocked() {
			r.tracker.Named()
		}
	}
	r.running = true
	p.wg.Go(r.run)
	return nil
}

// listLocked gives a handler its initial list.
func (p *Processor) listLocked(r *Registration) error {
	l, err := p.allLocked()
	if err == nil && l.chunks() > 0 {
		r.add(delivery{kind: initialList, listing: l})
	}
	return err
}

// listOwedLocked gives the handlers that are owed it the initial list.
func (p *Processor) listOwedLocked() {
	for r := range p.listeners {
		if !r.owed {
			continue
		}
		if err := p.listLocked(r); err != nil {
			p.opts.OnError(fmt.Errorf("the initial list of handlers waits: %w", err))
			return
		}
		if r.owed = false; p.synced.HasSynced() {
			r.tracker.Named()
		}
	}
}

// allLocked returns a listing of all objects that can be read. Handlers that need it in the same
// state share it.
func (p *Processor) allLocked() (*listing, error) {
	state := p.opts.Collection.State()
	if l := p.listings.shared(state); l != nil {
		return l, nil
	}
	v, err := p.opts.Collection.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	l := &listing{of: state}
	objects, last := 0, ""
	for h, err := range v.Headers("", "") {
		switch {
		case err == nil:
			if objects%chunkObjects == 0 {
				l.bounds = append(l.bounds, last)
			}
			objects, last = objects+1, h.Key
		case errors.As(err, new(*store.CorruptionError)):
			p.opts.OnError(err)
		default:
			return nil, err
		}
	}
	p.listings.share(l)
	return l, nil
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

// Wanted implements pipeline.Sink. Of a first list the handlers get all objects, not its changes.
func (p *Processor) Wanted(list bool) bool { return !list || p.opts.Collection.State().Synced }

// Commit implements pipeline.Sink. The handlers get the changes one by one, but the new objects of a list as
// one listing, which is read from the store. No handler is added in between.
func (p *Processor) Commit(c store.Changeset, apply func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listOwedLocked()
	first := c.List && !p.opts.Collection.State().Synced
	if first {
		c.Transitions = nil // another sink may have wanted them
	}
	changes := p.changesLocked(c.Transitions)
	if c.List && len(p.listeners) > 0 {
		if err := p.setPrevious(changes); err != nil {
			return err
		}
	}
	p.listings.pin(changes)
	if err := apply(); err != nil {
		return err
	}
	if len(p.listeners) > 0 {
		var all []delivery
		var listed []*change
		for _, ch := range changes {
			if c.List && ch.Type != store.Deleted {
				listed = append(listed, ch)
			} else {
				all = append(all, delivery{change: ch})
			}
		}
		if len(listed) > 0 {
			all = append(all, delivery{kind: relist, listing: relisted(listed)})
		}
		for r := range p.listeners {
			if r.owed = r.owed || first && r.running; !r.owed {
				r.add(all...)
			}
		}
		p.listOwedLocked()
	}
	p.setSyncedLocked()
	return nil
}

// changesLocked returns transitions with values. The new state of an object and the old one of its next
// transition are one value.
func (p *Processor) changesLocked(ts []store.Transition) []*change {
	newest, before := p.opts.Decoding(true), p.opts.Decoding(false)
	late := p.lateLocked(len(ts))
	values := map[*object.Object]*value{nil: nil}
	valueOf := func(o *object.Object, decode Decode) *value {
		v, ok := values[o]
		if !ok {
			v = &value{object: o, decode: decode}
			if late {
				p.spoolLocked(v)
			}
			values[o] = v
		}
		return v
	}
	all := make([]*change, len(ts))
	for i, t := range ts {
		all[i] = &change{Type: t.Type, Key: t.Key, old: valueOf(t.Old, before), new: valueOf(t.Object, newest)}
	}
	return all
}

// relisted returns a listing of the objects that a later list has changed.
func relisted(changes []*change) *listing {
	l := &listing{}
	for _, ch := range changes {
		l.keys, l.olds = append(l.keys, ch.Key), append(l.olds, ch.old)
	}
	return l
}

// holdsLocked reports whether something keeps the informer from being synced.
func (p *Processor) holdsLocked() bool {
	if p.held == nil {
		return false
	}
	select {
	case <-p.held:
		return false
	default:
		return true
	}
}

// setSyncedLocked marks the informer and its handlers as synced, once the collection is and nothing holds
// that.
func (p *Processor) setSyncedLocked() {
	if p.synced.HasSynced() || !p.opts.Collection.State().Synced || p.holdsLocked() {
		return
	}
	p.synced.Named()
	for r := range p.listeners {
		if !r.owed {
			r.tracker.Named()
		}
	}
}

// resyncs runs Resync whenever a handler may be due, until ctx ends.
func (p *Processor) resyncs(ctx context.Context) {
	p.mu.Lock()
	check := p.check // constant from now on: a later handler adapts to it
	p.mu.Unlock()
	if check == 0 {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, check, false, func(context.Context) (bool, error) {
		if err := p.Resync(); err != nil {
			p.opts.OnError(fmt.Errorf("resync: %w", err))
		}
		return false, nil // until ctx ends
	})
}

// change is a [store.Transition] for all handlers.
type change struct {
	Type     store.EventType
	Key      string
	old, new *value // nil without the object
}

// delivery is an element of a handler's backlog: a change, or a listing.
type delivery struct {
	*change
	listing *listing // nil for a change
	kind    listingKind
}

// listingKind is which calls a handler gets for the objects of a listing.
type listingKind uint8

const (
	initialList listingKind = iota // OnAdd, as the handler's initial list
	relist                         // OnUpdate, or OnAdd if the listing has no old object
	resync                         // OnUpdate from the object to itself
)

// Decode converts a stored object to the value that handlers and readers get.
type Decode func(*object.Object) (any, error)

// value is a stored object for the handlers, with its decoder: see [ProcessorOptions].Decoding. The
// handlers share it, so it is decoded once.
type value struct {
	object *object.Object
	decode Decode

	spooled *spool.Place // of the object, in place of it; nil for none

	once    sync.Once
	decoded any
	err     error
}

// get returns the decoded object, which it keeps if it keeps the object. It is safe for concurrent use.
func (v *value) get() (any, error) {
	if v.spooled != nil {
		return v.fresh()
	}
	v.once.Do(func() { v.decoded, v.err = v.fresh() })
	return v.decoded, v.err
}

// fresh decodes the object, and keeps nothing.
func (v *value) fresh() (any, error) {
	if v.spooled == nil {
		return v.decode(v.object)
	}
	o, err := v.spooled.Object()
	if err != nil {
		return nil, err
	}
	return v.decode(o)
}

// minResync is the shortest resync period, the same as client-go's.
const minResync = time.Second

// Resync calls OnUpdate of the handlers whose period has passed, with each stored object as old and
// new. A handler that is still getting its initial list, or the previous resync, is left out.
func (p *Processor) Resync() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
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
		r.add(delivery{kind: resync, listing: l})
	}
	return nil
}

// setResyncLocked sets a new handler's period. Before the start, the shortest requested period
// becomes the check period; later handlers get no shorter one.
func (p *Processor) setResyncLocked(r *Registration, period time.Duration) {
	if period > 0 && period < minResync {
		r.logger.Info("resync period is too short, using the least there is", "period", period, "least", minResync)
		period = minResync
	}
	if period > 0 && period < p.check && !p.started {
		p.check = period
		for other := range p.listeners {
			other.resync = adapt(r.logger, other.requested, p.check)
		}
	}
	r.requested, r.resync = period, adapt(r.logger, period, p.check)
	r.next = time.Now().Add(r.resync)
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
