package informer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/buffer"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/internal/synced"
	"github.com/snapcache/snapcache/store"
)

const (
	listenerBuffer = 128         // first size of a handler's ring, which grows as needed
	crashPause     = time.Second // without calls after a handler's panic that the process survived
)

// Registration is one handler's subscription. It is safe for concurrent use.
type Registration struct {
	p        *Processor
	handler  cache.ResourceEventHandler
	logger   klog.Logger
	tracker  *synced.Tracker
	stop     chan struct{} // closed when the subscription ends
	finished chan struct{} // closed when the handler has returned from its last call

	// The processor's lock guards the next five fields.
	running   bool
	owed      bool          // the first list is stored, and the handler has not got its initial list
	requested time.Duration // resync period that the program requested
	resync    time.Duration // the period in effect
	next      time.Time     // of the next resync

	mu      sync.Mutex
	changed *sync.Cond
	pending *buffer.TypedRingGrowing[delivery] // grows with the handler's backlog
	whole   int                                // number of undelivered listings of all objects
	ended   bool
}

func (p *Processor) newRegistration(h cache.ResourceEventHandler, opts cache.HandlerOptions) *Registration {
	r := &Registration{
		p: p, handler: h, logger: ptr.Deref(opts.Logger, klog.Background()),
		tracker: synced.New(fmt.Sprintf("%s + event handler %T", p.opts.Name, h)),
		stop:    make(chan struct{}), finished: make(chan struct{}),
		pending: buffer.NewTypedRingGrowing[delivery](buffer.RingGrowingOptions{InitialSize: listenerBuffer}),
	}
	r.changed = sync.NewCond(&r.mu)
	p.setResyncLocked(r, ptr.Deref(opts.ResyncPeriod, p.opts.Resync))
	return r
}

// HasSynced reports whether the collection has synced and the handler has got its whole initial
// list.
func (r *Registration) HasSynced() bool { return r.tracker.HasSynced() }

// HasSyncedChecker returns a checker that is done when HasSynced becomes true.
func (r *Registration) HasSyncedChecker() cache.DoneChecker { return r.tracker }

// ShutdownChan is closed when the subscription has ended and the handler has returned.
func (r *Registration) ShutdownChan() <-chan struct{} { return r.finished }

// add appends to the handler's backlog.
func (r *Registration) add(all ...delivery) {
	if len(all) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range all {
		if d.listing != nil {
			r.p.listings.acquire(d.listing)
			if d.kind == initialList {
				r.tracker.Start()
			}
			if d.kind != relist {
				r.whole++
			}
		}
		r.pending.WriteOne(d)
	}
	r.changed.Signal()
}

// getsAll reports whether the handler has not finished with a listing of all objects.
func (r *Registration) getsAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whole > 0
}

// late reports whether the handler's backlog is so long, or will be with some more changes after a listing of
// all objects, that the objects in it should not be in memory.
func (r *Registration) late(changes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.pending.Len()
	return n >= lateAfter || r.whole > 0 && n+changes > lateAfter
}

// end ends the subscription. It is called once, under the processor's lock.
func (r *Registration) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	close(r.stop)
	if !r.running {
		close(r.finished)
	}
	r.changed.Signal()
}

// run delivers the backlog until the subscription ends.
func (r *Registration) run() {
	defer close(r.finished)
	defer r.drop()
	for {
		d, ok := r.take()
		switch {
		case !ok:
			return
		case d.listing != nil:
			r.list(d)
		case !r.deliver(d.change):
			r.pause()
		}
	}
}

// pause waits crashPause, or for the end of the subscription.
func (r *Registration) pause() {
	_ = sleep.UnlessWoken(context.Background(), clock.RealClock{}, crashPause, r.stop)
}

// deliver calls the handler with a change. It returns false if the handler panicked.
func (r *Registration) deliver(c *change) (ok bool) {
	defer utilruntime.HandleCrashWithLogger(r.logger)
	var before any
	if c.Type != store.Deleted || c.new == nil {
		before = r.object(c.old) // first: once the new state is decoded, the decoder does not keep this one
	}
	switch o := r.object(c.new); {
	case c.Type == store.Deleted && c.new == nil:
		r.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: c.Key, Obj: before})
	case o == nil: // it can't be decoded
	case c.Type == store.Deleted:
		r.handler.OnDelete(o)
	default:
		r.update(before, o)
	}
	return true
}

// update calls OnUpdate, or OnAdd if the old state is unknown or can't be decoded, because the
// handler then never got it.
func (r *Registration) update(before, o any) {
	if before != nil {
		r.handler.OnUpdate(before, o)
	} else {
		r.handler.OnAdd(o, false)
	}
}

// list delivers the objects of a listing.
func (r *Registration) list(d delivery) {
	l := d.listing
	defer r.p.listings.release(l)
	var ahead []*chunk // from the current one on; they are loaded while the handler is called
	for number := range l.chunks() {
		for n := number + len(ahead); n < min(number+1+loadAhead, l.chunks()); n++ {
			ahead = append(ahead, r.p.listings.chunk(l, n))
		}
		c := ahead[0]
		ahead = slices.Delete(ahead, 0, 1) // clears its place: the array would hold chunks that have passed
		select {
		case <-c.done:
		case <-r.stop:
			return
		}
		for i := range c.items {
			select {
			case <-r.stop:
				return
			default:
			}
			if !r.deliverItem(d, c, i) {
				r.pause()
			}
		}
		r.p.listings.passed(c)
	}
	if d.kind == initialList {
		r.tracker.Finished()
	}
	if d.kind != relist {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.whole--
	}
}

// deliverItem calls the handler with one object of a listing. It returns false if the handler
// panicked.
func (r *Registration) deliverItem(d delivery, c *chunk, i int) (ok bool) {
	defer utilruntime.HandleCrashWithLogger(r.logger)
	it := &c.items[i]
	switch {
	case it.err != nil:
		r.failed(it.err)
	case it.object == nil: // the decoder panicked
	case d.kind == initialList:
		r.handler.OnAdd(it.object, true)
	case d.kind == resync:
		r.handler.OnUpdate(it.object, it.object)
	default:
		if it.beforeErr != nil {
			r.failed(it.beforeErr)
		}
		r.update(it.before, it.object)
	}
	return true
}

// object decodes a value; nil if there is none or it can't be decoded.
func (r *Registration) object(v *value) any {
	if v == nil {
		return nil
	}
	o, err := v.get()
	if err != nil {
		r.failed(err)
		return nil
	}
	return o
}

func (r *Registration) failed(err error) {
	r.p.opts.OnError(fmt.Errorf("handler %T: %w", r.handler, err))
}

// drop releases the remaining backlog after the end of the subscription.
func (r *Registration) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		d, ok := r.pending.ReadOne()
		if !ok {
			return
		}
		if d.listing != nil {
			r.p.listings.release(d.listing)
		}
	}
}

func (r *Registration) take() (delivery, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.ended {
			return delivery{}, false
		}
		if d, ok := r.pending.ReadOne(); ok {
			return d, true
		}
		r.changed.Wait()
	}
}
