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

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// Watches end by themselves after a random time in this range, as client-go's
// do, so that the watches of a fleet do not end together.
const (
	watchMin = 5 * time.Minute
	watchMax = 10 * time.Minute
)

// watchTimeout is how long the next watch is asked to last.
func watchTimeout() time.Duration {
	return watchMin + rand.N(watchMax-watchMin) //nolint:gosec // spreads load, guards nothing
}

// errShortWatch says that a watch ended sooner than a healthy one would.
var errShortWatch = errors.New("the server ended the watch at once")

// watch runs one watch to its end. A nil error means: go on at once.
func (r *Reflector) watch(ctx context.Context) error {
	timeout := watchTimeout()
	start := r.opts.Clock.Now()
	w, err := r.opts.Source.Watch(ctx, r.rv, timeout)
	if err != nil {
		if expired(err) {
			r.relist(store.ReasonExpired, err)
			return nil
		}
		return fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	r.opts.Observer.Phase(PhaseWatching, nil)
	events, err := r.consume(ctx, w)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// No replay may come for hours.
	r.opts.Queue.Flush()
	if expired(err) {
		r.relist(store.ReasonExpired, err)
		return nil
	}
	lasted := r.opts.Clock.Since(start)
	if lasted < timeout-time.Second {
		// Not the end we asked for: the server may have been restarted, or even
		// restored, behind our back. Ask the guards again.
		r.proven = false
	}
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return r.closed(events, lasted)
}

// closed judges a watch that ended without an error.
func (r *Reflector) closed(events int, lasted time.Duration) error {
	if events > 0 || lasted >= silentClose {
		r.silent = 0
		return nil
	}
	if r.resumed {
		if r.silent++; r.silent >= silentTries {
			r.relist(store.ReasonSilentClose, errShortWatch)
			return nil
		}
	}
	return errShortWatch
}

// consume queues a watch's events and returns how many there were.
func (r *Reflector) consume(ctx context.Context, w watch.Interface) (events int, err error) {
	for {
		select {
		case <-ctx.Done():
			return events, ctx.Err()
		case e, ok := <-w.ResultChan():
			if !ok {
				return events, nil
			}
			if err := r.event(e); err != nil {
				return events, err
			}
			events++
		}
	}
}

// event queues one event.
func (r *Reflector) event(e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	o, ok := e.Object.(*object.Object)
	if !ok {
		r.opts.Observer.Skipped(unusable(e))
		return nil
	}
	var err error
	switch e.Type {
	case watch.Bookmark:
		err = r.opts.Queue.Bookmark(o.GetResourceVersion())
	case watch.Added, watch.Modified, watch.Deleted:
		if !r.expected(o) {
			return nil
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
		r.opts.Observer.Skipped(fmt.Errorf("unknown event type %q", e.Type))
		return nil
	}
	if err != nil {
		return err
	}
	r.opts.Observer.Event(e.Type)
	if rv := o.GetResourceVersion(); rv != "" {
		r.rv = rv
	}
	r.resumed = false
	return nil
}

func unusable(e watch.Event) error {
	switch o := e.Object.(type) {
	case *upstream.Unusable:
		return fmt.Errorf("%s event: %w", e.Type, o.Err)
	case *metav1.Status:
		return fmt.Errorf("%s event: %w", e.Type, apierrors.FromObject(o))
	default:
		return fmt.Errorf("%s event with a %T", e.Type, o)
	}
}
