package collection

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// checkLimit is how long the server may take to answer whether the watch missed anything. The
	// question itself takes a second.
	checkLimit = 4 * time.Second

	// deliverLimit is how long the watch may take to deliver an event that another watch has delivered.
	deliverLimit = time.Second
)

// probe returns the server's newest resourceVersion, and notes in the tracker whether the watch has
// missed anything.
func (c *Collection) probe(ctx context.Context) (string, error) {
	live := c.Live()
	if live.Source == nil {
		return "", errNoSource
	}
	asking, answered := live.Source.Link().Await(ctx, 0)
	rv, err := live.Source.Newest(asking)
	answered(err)
	switch {
	case err == nil:
		c.Tracker.Seen(rv, live.Stored.State().RV)
		c.Tracker.wakeChecks()
	case !errors.Is(ctx.Err(), context.Canceled): // by the caller
		c.Tracker.Doubt(unanswered(err))
		c.Tracker.wakeChecks()
	}
	return rv, err
}

// unanswered returns the doubt because of a question that the server did not answer.
func unanswered(err error) error {
	return fmt.Errorf("%w, as far as is known: the server does not answer whether it missed anything: %w", upstream.ErrSilent, err)
}

// watchOver checks the open watch whenever it has not proven itself in time, until ctx ends.
func (c *Collection) watchOver(ctx context.Context, stored store.Collection, source *upstream.Source, r *reflector.Reflector) {
	for ctx.Err() == nil {
		due, ahead, open := c.Tracker.CheckDue()
		wait := due.Sub(c.opts.Clock.Now())
		switch {
		case !open: // woken when a watch is
			select {
			case <-ctx.Done():
			case <-c.Tracker.checks:
			}
		case wait > 0:
			sleep.Retry(ctx, c.opts.Clock, wait, c.Tracker.checks)
		default:
			c.check(ctx, stored, source, r, ahead)
		}
	}
}

// check asks the server whether the watch missed anything. If it did, and has been silent meanwhile,
// another watch takes its place.
func (c *Collection) check(ctx context.Context, stored store.Collection, source *upstream.Source, r *reflector.Reflector, ahead bool) {
	began := c.Tracker.CheckBegan()
	missed, err := c.missed(ctx, stored, source, ahead)
	silent := false
	if err == nil && missed != "" && !c.delivered(ctx, stored, missed) {
		err = fmt.Errorf("%w: the server has the change %s, which did not arrive", upstream.ErrSilent, missed)
		silent = c.Tracker.Silent(began)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if c.Tracker.Watching() {
			c.Log.Warn("the watch proves nothing any more: the cache may be stale", "error", upstream.Explain(err))
		}
		c.Tracker.Doubt(err)
		if silent {
			r.Rewatch(err) // not before Doubt, which is for the open watch and is inherited by the next one
		}
	default:
		if !c.Tracker.Watching() {
			c.Log.Info("nothing is missing: the watch is trusted again")
		}
		c.Tracker.CheckPassed(began)
	}
}

// missed returns the resourceVersion of a change that the collection does not have, "" for none. If
// ahead is set, the server is known to be ahead of the collection.
func (c *Collection) missed(ctx context.Context, stored store.Collection, source *upstream.Source, ahead bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	rv := stored.State().RV
	if !ahead {
		newest, err := source.Newest(ctx)
		if err != nil {
			return "", unanswered(err)
		}
		if newest == rv {
			return "", nil
		}
	}
	missed, err := source.Missed(ctx, rv)
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return "", fmt.Errorf("%w: the server has more changes since %s than it remembers", upstream.ErrSilent, rv)
	case err != nil:
		return "", unanswered(err)
	}
	return missed, nil
}

// delivered waits until the collection is at rv, and reports whether it was in time.
func (c *Collection) delivered(ctx context.Context, stored store.Collection, rv string) bool {
	timer := c.opts.Clock.NewTimer(deliverLimit)
	defer timer.Stop()
	for {
		changed := c.Tracker.NextChange()
		if order, ok := object.CompareRV(stored.State().RV, rv); !ok || order >= 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C():
			return false
		case <-changed:
		}
	}
}
