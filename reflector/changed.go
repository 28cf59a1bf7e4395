package reflector

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// After a restart a server answers 410 to all its clients at once, although hardly anything has changed.
// A list of versions alone, and of the changed objects one by one, then takes a quarter to a fourteenth of
// a whole list's bytes, and as much less of the server's CPU time: docs/decisions/list-of-versions.md.
const (
	// leastVersions is the size of a collection from which on versions are listed. A server does not
	// compress an answer below 128 KiB, so that those of fewer objects may take more bytes than the objects.
	leastVersions = 200

	// An object that is fetched alone is not compressed, and takes as many bytes as ten in a list. So at
	// most a changedShare-th of a collection is fetched, at least fewChanged and at most manyChanged objects.
	changedShare = 30
	fewChanged   = 10
	manyChanged  = 500

	// changedAtOnce is the number of objects that are fetched at the same time.
	changedAtOnce = 8

	// versionTries is how many times in a row a list of versions may fail because the server can't be
	// reached before a whole list is made.
	versionTries = 3
)

// errManyChanged means that a whole list is cheaper.
var errManyChanged = errors.New("many objects have changed")

// versionSource is a source that can list versions, and return past states. *upstream.Source implements
// it.
type versionSource interface {
	Versions(ctx context.Context, o upstream.VersionsOptions, each func(upstream.Version) error) (rv string, err error)
	GetAt(ctx context.Context, key, rv string) (*object.Object, error)
}

// versionQueue is a queue that knows what its consumer holds. *deltafifo.Queue implements it.
type versionQueue interface {
	Held() (int, error)
	KeepVersion(key string, v deltafifo.Version) (kept bool, err error)
}

// changes lists the objects of a collection that differ from those that the queue's consumer holds.
type changes struct {
	source versionSource
	queue  versionQueue
	limit  int // of changed objects
}

// changes returns how to list only what has changed, nil if the next list is a whole one: the stored
// versions may be of another history, the collection is small, or the server has failed to do it.
func (r *Reflector) changes() (*changes, error) {
	source, lists := r.opts.Source.(versionSource)
	queue, holds := r.opts.Queue.(versionQueue)
	if !lists || !holds || r.reason != store.ReasonExpired || !r.mustBeOneHistory() || r.versionFailures >= versionTries {
		return nil, nil
	}
	held, err := queue.Held()
	if err != nil || held < leastVersions {
		return nil, err
	}
	return &changes{source: source, queue: queue, limit: min(max(held/changedShare, fewChanged), manyChanged)}, nil
}

// list calls each with every object that has changed, tells the queue of the others, and returns the
// resourceVersion at which all are complete, and the number of the others. The objects are read in the
// same state of the server as the versions: that is the state of a whole list.
func (c *changes) list(
	ctx context.Context, opts upstream.ListOptions, each func(*object.Object) error,
) (rv string, kept int64, err error) {
	var changed []upstream.Version
	versions := upstream.VersionsOptions{PageSize: opts.PageSize, OneState: true, Between: func(remaining int64) error {
		opts.Progress(kept, remaining)
		return nil
	}}
	rv, err = c.source.Versions(ctx, versions, func(v upstream.Version) error {
		same, err := c.queue.KeepVersion(v.Key, deltafifo.Version{UID: v.UID, RV: v.RV})
		switch {
		case err != nil:
			return err
		case same:
			kept++
			return nil
		case len(changed) == c.limit:
			return errManyChanged
		}
		changed = append(changed, v)
		return nil
	})
	for next := 0; err == nil && next < len(changed); next += changedAtOnce {
		err = c.fetch(ctx, rv, changed[next:min(next+changedAtOnce, len(changed))], each)
	}
	return rv, kept, err
}

// fetch calls each with the objects of these versions, which are of the state rv.
func (c *changes) fetch(
	ctx context.Context, rv string, versions []upstream.Version, each func(*object.Object) error,
) error {
	objects := make([]*object.Object, len(versions))
	g, ctx := errgroup.WithContext(ctx)
	for i, v := range versions {
		g.Go(func() error {
			o, err := c.source.GetAt(ctx, v.Key, rv)
			if err == nil && (o.GetResourceVersion() != v.RV || string(o.GetUID()) != v.UID) {
				err = fmt.Errorf("%s is at %s in the state %s, and was listed at %s", v.Key, o.GetResourceVersion(), rv, v.RV)
			}
			objects[i] = o
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, o := range objects {
		if err := each(o); err != nil {
			return err
		}
	}
	return nil
}

// listChanged lists only what has changed, if that may be less. done reports whether err is the result
// of the list; otherwise a whole list is needed.
func (r *Reflector) listChanged(ctx context.Context, cluster, schema string) (list complete, done bool, err error) {
	c, err := r.changes()
	if err != nil || c == nil {
		return list, err != nil, err
	}
	list, err = r.listOnce(ctx, cluster, schema, r.opts.PageSize, c)
	switch {
	case err == nil:
		return list, true, nil
	case ctx.Err() != nil, errors.Is(err, deltafifo.ErrClosed), asRelist(err) != nil:
		return list, true, err
	case mayPass(err):
		r.versionFailures++
		return list, true, err
	}
	r.versionFailures = versionTries
	if errors.As(err, new(*MassDeleteError)) {
		return list, true, err // after a wait, a whole list confirms it
	}
	r.opts.Logger.Info("listing whole objects", "instead", "only what has changed", "error", upstream.Explain(err))
	return list, false, nil
}
