package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// watchMin is the shortest timeout of a watch. The timeouts are random between the shortest and
// twice as much, as client-go's are, so that the watches of a fleet do not end together.
const watchMin = 5 * time.Minute

func watchTimeout(least time.Duration) time.Duration {
	least = max(least, watchMin)
	return least + rand.N(least) //nolint:gosec // spreads load, guards nothing
}

// watchSlack is how long after its timeout a watch may end: the end of a stream may be delayed like any
// other data. A proxy that holds the stream, and keeps the connection alive, would otherwise never let go
// of it.
const watchSlack = 15 * time.Second

// validFor is how long after a validation a watch may be opened without another one: less than any
// restore of a cluster takes.
const validFor = 5 * time.Second

// ErrShortWatch means that a watch ended sooner than a healthy one does, without an event.
var ErrShortWatch = errors.New("the server ended the watch at once")

// watch runs one watch to its end. On nil the next step follows at once.
func (r *Reflector) watch(ctx context.Context) error {
	timeout := watchTimeout(r.opts.MinWatchTimeout)
	start := r.opts.Clock.Now()
	w, err := r.opts.Source.Watch(ctx, r.rv, timeout)
	if err != nil {
		return r.failed(err)
	}
	defer w.Stop()
	select {
	case <-r.rewatchRequests: //nolint:errcheck // the error is the reason to end the watch before this one
	default:
	}
	if r.opts.Clock.Since(r.validatedAt) > validFor {
		// While the watch is open the result holds: a restore of the server ends the watch.
		if err := r.validate(ctx); err != nil {
			return r.relistFor(err)
		}
	}
	r.opts.Observer.Phase(PhaseWatching, nil)
	r.ordered = r.rv != "" && r.rv != "0"
	events, err := r.consume(ctx, w, timeout-r.opts.Clock.Since(start)+watchSlack)
	lasted := r.opts.Clock.Since(start)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The next batch may not come for hours.
	r.opts.Queue.Flush()
	if err != nil {
		return r.failed(err)
	}
	r.validatedAt = r.opts.Clock.Now() // the server that began the watch also ended it
	if lasted < timeout-time.Second {
		// The watch ended before its timeout: the server may have been restarted, or even
		// restored. Run the guards again.
		r.validated = false
	} else if err := r.schemaChanged(ctx); asRelist(err) != nil {
		return r.relistFor(err)
	} else if err != nil {
		r.opts.Logger.Info("the schema can't be compared at the moment", "error", err)
	}
	if events > 0 || lasted >= silentClose {
		r.silent = 0
		return nil
	}
	if r.resumed {
		if r.silent++; r.silent >= silentTries {
			r.relist(store.ReasonSilentClose, ErrShortWatch)
			return nil
		}
	}
	return ErrShortWatch
}

// failed handles the error of a watch. It returns nil if the next step is a list at once.
func (r *Reflector) failed(err error) error {
	switch {
	case expired(err):
		r.relist(store.ReasonExpired, err)
		return nil
	case apierrors.IsStoreReadError(err):
		// The server could not read an object, and may end the next watch too: wait before the list.
		r.relist(store.ReasonStoreReadError, err)
		return err
	}
	return r.relistFor(fmt.Errorf("watch: %w", err))
}

// consume queues a watch's events until the watch ends, and returns their number. A [*RelistError]
// means that the next step is a list, [upstream.ErrSilent] that the watch was given up.
func (r *Reflector) consume(ctx context.Context, w watch.Interface, longest time.Duration) (events int, err error) {
	overdue := r.opts.Clock.NewTimer(longest)
	defer overdue.Stop()
	restored := r.opts.Member.next()
	if err := r.opts.Member.follow(); err != nil {
		return 0, err
	}
	client, encodes := w.(*stream)
	for {
		select {
		case <-ctx.Done():
			return events, ctx.Err()
		case <-r.resync:
			if r.opts.ShouldResync != nil && !r.opts.ShouldResync() {
				continue
			}
			if q, can := r.opts.Queue.(interface{ Resync() error }); can {
				if err := q.Resync(); err != nil {
					return events, err
				}
			}
		case refused := <-r.relistRequests:
			return events, refused
		case why := <-r.rewatchRequests:
			return events, why
		case <-restored:
			return events, r.opts.Member.follow()
		case <-overdue.C():
			return events, fmt.Errorf("%w: it did not end at its timeout", upstream.ErrSilent)
		case e, ok := <-w.ResultChan():
			if !ok {
				return events, nil
			}
			if encodes {
				e = client.event(e)
			}
			if err := r.event(e); err != nil {
				return events, err
			}
			events++
		}
	}
}

func (r *Reflector) event(e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	o, ok := e.Object.(*object.Object)
	if !ok {
		why := unusable(e)
		r.skipped(why)
		if errors.Is(why, upstream.ErrWrongType) {
			return r.opts.Queue.Skip()
		}
		return nil
	}
	if err := r.wentOn(o.GetResourceVersion()); err != nil {
		return err
	}
	var err error
	switch e.Type {
	case watch.Bookmark:
		err = r.opts.Queue.Bookmark(o.GetResourceVersion())
	case watch.Added, watch.Modified, watch.Deleted:
		if !r.expected(o) {
			return r.opts.Queue.Skip()
		}
		switch e.Type {
		case watch.Added:
			err = r.opts.Queue.Add(o)
		case watch.Modified:
			err = r.opts.Queue.Update(o)
		default:
			err = r.opts.Queue.Delete(o)
		}
	default:
		r.skipped(fmt.Errorf("unknown event type %q", e.Type))
		return nil
	}
	switch {
	case errors.Is(err, deltafifo.ErrUnusable):
		// A retry would fail in the same way, and so would a list.
		r.skipped(err)
	case err != nil:
		return err
	default:
		r.opts.Observer.Event(e.Type, o.GetResourceVersion())
	}
	if e.Type != watch.Added {
		r.ordered = true
	}
	// The ADDED events at the start of a watch without a resourceVersion come in any order.
	if rv := o.GetResourceVersion(); rv != "" && r.ordered {
		r.reached(rv)
	}
	r.resumed = false
	return nil
}

// wentOn returns an error if an event at rv is older than the newest one. No server sends it, but a proxy
// that sends an old answer again, and it could bring back an old state. A [ListWatch] may be a fake one,
// whose resourceVersions are in no order.
func (r *Reflector) wentOn(rv string) error {
	_, mayBeFake := r.opts.Source.(*ListWatch)
	if order, ok := object.CompareRV(rv, r.rv); mayBeFake || !r.ordered || !ok || order >= 0 {
		return nil
	}
	return fmt.Errorf("%w: it sent the resourceVersion %s after %s", upstream.ErrSilent, rv, r.rv)
}

func unusable(e watch.Event) error {
	switch o := e.Object.(type) {
	case *upstream.InvalidObject:
		return fmt.Errorf("%s event: %w", e.Type, o.Err)
	case *metav1.Status:
		return fmt.Errorf("%s event: %w", e.Type, apierrors.FromObject(o))
	default:
		return fmt.Errorf("%s event with a %T", e.Type, o)
	}
}
