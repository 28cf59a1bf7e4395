package informer

import (
	"fmt"
	"strings"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/cache/synctrack"
	"k8s.io/klog/v2"
	"k8s.io/utils/buffer"
)

const (
	// listenerBuffer is the first size of a handler's ring; it grows as needed.
	listenerBuffer = 128

	// crashPause is how long a handler that panicked is left alone, where the
	// process survives that (see utilruntime.ReallyCrash).
	crashPause = time.Second
)

// Registration is one handler's subscription. It is safe for concurrent use.
type Registration struct {
	p        *Processor
	handler  cache.ResourceEventHandler
	logger   klog.Logger
	tracker  *synctrack.SingleFileTracker
	stop     chan struct{} // closed when the subscription ends
	finished chan struct{} // closed when the handler has returned for good

	// Under the processor's lock.
	running   bool
	requested time.Duration // resync period as asked for
	resync    time.Duration // as granted
	next      time.Time     // of the next resync

	mu       sync.Mutex
	changed  *sync.Cond
	pending  *buffer.TypedRingGrowing[note] // grows with what the handler has not taken
	deferred map[string]*value              // of pending, what is not read yet
	ended    bool
}

var _ cache.ResourceEventHandlerRegistration = (*Registration)(nil)

// eventHandler separates the names of informer and handler, as in client-go.
const eventHandler = " + event handler "

// handlerName is client-go's name of a handler, which only a registration of its own
// shows. The informer that makes the registration never runs.
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
		p: p, handler: h, logger: klog.Background(),
		tracker: synctrack.NewSingleFileTracker(p.opts.Name + eventHandler + handlerName(h)),
		stop:    make(chan struct{}), finished: make(chan struct{}),
		pending:  buffer.NewTypedRingGrowing[note](buffer.RingGrowingOptions{InitialSize: listenerBuffer}),
		deferred: map[string]*value{},
	}
	r.changed = sync.NewCond(&r.mu)
	if opts.Logger != nil {
		r.logger = *opts.Logger
	}
	period := p.opts.Resync
	if opts.ResyncPeriod != nil {
		period = *opts.ResyncPeriod
	}
	p.wantsResync(r, r.logger, period)
	return r
}

// HasSynced says that the collection has synced and the handler was given the
// whole initial list.
func (r *Registration) HasSynced() bool { return r.tracker.HasSynced() }

// HasSyncedChecker tells when HasSynced gets true.
func (r *Registration) HasSyncedChecker() cache.DoneChecker { return r.tracker }

// ShutdownChan is closed when the subscription has ended and the handler has
// returned. [cache.ShutDownEventHandler] waits for it.
func (r *Registration) ShutdownChan() <-chan struct{} { return r.finished }

func (r *Registration) add(n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.initial {
		r.tracker.Start()
	}
	if n.new != nil && n.new.loaded.Load() == nil {
		r.deferred[n.new.key] = n.new
	}
	r.pending.WriteOne(n)
	r.changed.Signal()
}

// addResync adds an update of key that changes nothing, unless the handler is
// about to get the object anyway.
func (r *Registration) addResync(key string) {
	r.mu.Lock()
	_, waits := r.deferred[key]
	r.mu.Unlock()
	if !waits {
		v := &value{key: key}
		r.add(note{kind: noteUpdate, key: key, old: v, new: v})
	}
}

// pin keeps an object that is about to change, where the handler has not got it.
func (r *Registration) pin(old *value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.deferred[old.key]; ok {
		v.pin(old.loaded.Load())
		delete(r.deferred, old.key)
	}
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
	for {
		n, ok := r.take()
		if !ok {
			return
		}
		if !r.deliver(n) {
			timer := r.p.opts.Clock.NewTimer(crashPause)
			select {
			case <-r.stop:
			case <-timer.C():
			}
			timer.Stop()
		}
	}
}

// deliver calls the handler; false says that it panicked.
func (r *Registration) deliver(n note) (ok bool) {
	defer utilruntime.HandleCrashWithLogger(r.logger)
	if n.initial {
		defer r.tracker.Finished()
	}
	switch n.kind {
	case noteAdd:
		if o := r.object(n.new); o != nil {
			r.handler.OnAdd(o, n.initial)
		}
	case noteUpdate:
		o := r.object(n.new)
		old := o
		if n.old != n.new {
			old = r.object(n.old)
		}
		if old != nil && o != nil {
			r.handler.OnUpdate(old, o)
		} else if o != nil { // what was there before can't be read, so the handler never got it
			r.handler.OnAdd(o, false)
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

// object reads and decodes a value; nil where that is not possible.
func (r *Registration) object(v *value) any {
	if v == nil {
		return nil
	}
	o, err := v.get(r.p)
	r.mu.Lock()
	if r.deferred[v.key] == v {
		delete(r.deferred, v.key)
	}
	r.mu.Unlock()
	if err != nil {
		r.p.opts.OnError(fmt.Errorf("handler %T: %w", r.handler, err))
		return nil
	}
	return o
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
