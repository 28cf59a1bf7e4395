package informer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/cache/synctrack"
	"k8s.io/klog/v2"
	"k8s.io/utils/buffer"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/snapcache/snapcache/internal/sleep"
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
	tracker  *synctrack.SingleFileTracker
	stop     chan struct{} // closed when the subscription ends
	finished chan struct{} // closed when the handler has returned from its last call

	// The processor's lock guards the next four fields.
	running   bool
	requested time.Duration // resync period that the program requested
	resync    time.Duration // the period in effect
	next      time.Time     // of the next resync

	mu      sync.Mutex
	changed *sync.Cond
	pending *buffer.TypedRingGrowing[note] // grows with the handler's backlog
	whole   int                            // number of undelivered listings of all objects
	ended   bool
}

// eventHandler separates the names of informer and handler, as in client-go.
const eventHandler = " + event handler "

// handlerName returns client-go's name of a handler. Only a registration of client-go has it, so
// handlerName makes one with an informer that never runs.
func handlerName(h cache.ResourceEventHandler) string {
	r, err := cache.NewSharedIndexInformer(nil, nil, 0, nil).AddEventHandler(h)
	if err != nil {
		return fmt.Sprintf("%T", h)
	}
	_, name, _ := strings.Cut(r.HasSyncedChecker().Name(), eventHandler)
	return name
}

func (p *Processor) newRegistration(h cache.ResourceEventHandler, opts cache.HandlerOptions) *Registration {
	r := &Registration{
		p: p, handler: h, logger: ptr.Deref(opts.Logger, klog.Background()),
		tracker: synctrack.NewSingleFileTracker(p.opts.Name + eventHandler + handlerName(h)),
		stop:    make(chan struct{}), finished: make(chan struct{}),
		pending: buffer.NewTypedRingGrowing[note](buffer.RingGrowingOptions{InitialSize: listenerBuffer}),
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

// add appends notes to the handler's backlog.
func (r *Registration) add(notes ...note) {
	if len(notes) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range notes {
		if n.listing != nil {
			r.p.listings.acquire(n.listing)
		}
		switch n.kind {
		case noteInitial:
			r.tracker.Start()
			r.whole++
		case noteResync:
			r.whole++
		}
		r.pending.WriteOne(n)
	}
	r.changed.Signal()
}

// getsAll reports whether the handler has not finished with a listing of all objects.
func (r *Registration) getsAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whole > 0
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

// run delivers notes until the subscription ends.
func (r *Registration) run() {
	defer close(r.finished)
	defer r.drop()
	for {
		n, ok := r.take()
		switch {
		case !ok:
			return
		case n.listing != nil:
			r.list(n)
		case !r.deliver(n):
			r.pause()
		}
	}
}

// pause waits crashPause, or for the end of the subscription.
func (r *Registration) pause() {
	_ = sleep.UnlessWoken(context.Background(), clock.RealClock{}, crashPause, r.stop)
}

// deliver calls the handler with a note that is no listing. It returns false if the handler
// panicked.
func (r *Registration) deliver(n note) (ok bool) {
	defer utilruntime.HandleCrashWithLogger(r.logger)
	switch n.kind {
	case noteAdd:
		if o := r.object(n.new); o != nil {
			r.handler.OnAdd(o, false)
		}
	case noteUpdate:
		if o := r.object(n.new); o != nil {
			r.update(n.old, o)
		}
	case noteDelete:
		if n.new == nil {
			r.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: n.key, Obj: r.object(n.old)})
		} else if o := r.object(n.new); o != nil {
			r.handler.OnDelete(o)
		}
	}
	return true
}

// update calls OnUpdate, or OnAdd if the old state is unknown or can't be decoded, because the
// handler then never got it.
func (r *Registration) update(old *value, o any) {
	if before := r.object(old); before != nil {
		r.handler.OnUpdate(before, o)
	} else {
		r.handler.OnAdd(o, false)
	}
}

// list delivers the objects of a listing.
func (r *Registration) list(n note) {
	l := n.listing
	defer r.p.listings.release(l)
	var ahead []*chunk // from the current one on; they are loaded while the handler is called
	for number := range l.chunks() {
		for n := number + len(ahead); n < min(number+1+loadAhead, l.chunks()); n++ {
			ahead = append(ahead, r.p.listings.chunk(l, n))
		}
		c := ahead[0]
		ahead = ahead[1:]
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
			if !r.deliverItem(n, c, i) {
				r.pause()
			}
		}
	}
	if n.kind == noteInitial {
		r.tracker.Finished()
	}
	if n.kind != noteListed {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.whole--
	}
}

// deliverItem calls the handler with one object of a listing. It returns false if the handler
// panicked.
func (r *Registration) deliverItem(n note, c *chunk, i int) (ok bool) {
	defer utilruntime.HandleCrashWithLogger(r.logger)
	it := &c.items[i]
	switch {
	case it.err != nil:
		r.failed(it.err)
	case it.object == nil: // the decoder panicked
	case n.kind == noteInitial:
		r.handler.OnAdd(it.object, true)
	case n.kind == noteResync:
		r.handler.OnUpdate(it.object, it.object)
	default:
		r.update(n.listing.olds[c.first()+i], it.object)
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
		n, ok := r.pending.ReadOne()
		if !ok {
			return
		}
		if n.listing != nil {
			r.p.listings.release(n.listing)
		}
	}
}

func (r *Registration) take() (note, bool) {
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
