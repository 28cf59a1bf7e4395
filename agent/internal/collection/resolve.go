package collection

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// resolveTimeout is how long the server may take to name a resource.
const resolveTimeout = time.Minute

// prepare applies the pending spec and opens the collection, unless it is open; if reopen is set,
// in any case. It retries until ctx ends: the server may be down, or not have the resource yet, or the
// disk full.
//
// Only a credential that the server does not accept ends the agent, if nothing is cached. An agent
// with cached objects keeps serving them.
func (c *Collection) prepare(ctx context.Context, cluster *upstream.Cluster, reopen bool) error {
	retry := sleep.Backoff(500*time.Millisecond, 30*time.Second, 1)
	backoff := retry
	for misfit := false; ; {
		c.applySpec()
		if c.resource != nil && !reopen {
			return nil
		}
		r, err := c.lookUp(ctx, cluster, misfit)
		d := backoff.Step()
		wait := d.Round(time.Millisecond)
		if err == nil {
			if err = c.Open(r); err == nil {
				return nil
			}
			misfit = errors.Is(err, errNoNamespaces) // as the server serves it now
			c.Log.Error("the collection can't be opened; retrying", "wait", wait, "error", err)
		} else {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := c.fatal(err); err != nil {
				return err
			}
			if errors.As(err, new(*upstream.NoResourceError)) {
				c.Log.Error("the server does not have the resource; asking again until it does",
					"field", c.field()+".resource", "wait", wait, "error", err)
			} else {
				c.Log.Info("waiting for the server to name the resource", "wait", wait, "error", upstream.Explain(err))
			}
		}
		c.Tracker.Phase(reflector.PhaseWaiting, err)
		if sleep.Retry(ctx, c.opts.Clock, d, c.wake) {
			backoff = retry
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// lookUp returns the collection's resource. It asks the server once, unless the resource is known and
// does not misfit the configuration.
func (c *Collection) lookUp(ctx context.Context, cluster *upstream.Cluster, misfit bool) (upstream.Resource, error) {
	if c.resource != nil && !misfit {
		return *c.resource, nil
	}
	c.Tracker.progress.begin()
	defer c.Tracker.progress.end()
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	name := c.Configured().Resource
	return cluster.Resolve(ctx, name.Resource, name.Version, name.Group)
}

// errNoNamespaces means that the objects of a resource are in no namespace, but some are configured.
var errNoNamespaces = errors.New("live in no namespace")

// Missing reports whether the server has answered that it does not have the resource, or not in
// namespaces.
func (c *Collection) Missing() bool {
	problem := c.Tracker.Stats().Problem
	return errors.As(problem, new(*upstream.NoResourceError)) || errors.Is(problem, errNoNamespaces)
}

// fatal returns the error with which the agent should end, nil for none.
func (c *Collection) fatal(err error) error {
	if c.reloaded {
		return nil // a reload does not end an agent that has run without it
	}
	switch upstream.Classify(err) {
	case upstream.Untrusted, upstream.Unauthorized:
		if !AnySynced(c.opts.DB) {
			return upstream.Explain(err)
		}
	}
	return nil
}

// AnySynced reports whether a database has a collection to serve. If the database can't be read, it
// may have one.
func AnySynced(db store.DB) bool {
	infos, err := db.Collections()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(infos, func(info store.Info) bool {
		v, err := db.View(info.ID)
		if err != nil {
			return false
		}
		defer v.Close()
		return v.State().Synced
	})
}

// versionEvery is the time between two lookups of a resource that the server no longer serves.
const versionEvery = 10 * time.Second

// FollowVersions looks up, until ctx ends, resources that the server no longer serves as they were: it
// may serve another version, unless the configuration names one, or the same in another scope. The stored
// objects stay until the list of that is complete, and if the server serves none.
func FollowVersions(ctx context.Context, c clock.Clock, cluster *upstream.Cluster, all func() []*Collection) {
	for sleep.For(ctx, c, versionEvery) == nil {
		for _, c := range all() {
			c.followVersion(ctx, cluster)
		}
	}
}

func (c *Collection) followVersion(ctx context.Context, cluster *upstream.Cluster) {
	stats, was := c.Tracker.Stats(), c.Resource()
	if was == nil || stats.Phase == reflector.PhaseWatching || upstream.Classify(stats.Problem) != upstream.Gone {
		return
	}
	limited, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	name := c.Configured().Resource
	is, err := cluster.Resolve(limited, name.Resource, name.Version, name.Group)
	if err != nil || is == *was {
		return // the reflector reports the cause
	}
	c.redefine(*was, is)
}

// definitionChanged turns scope-changed into schema-changed if only the kind, the scope or the
// version differs, and the server chose it. It has not chosen a version that the configuration names.
func (c *Collection) definitionChanged(reason store.Reason, stored, want store.Info) store.Reason {
	if reason != store.ReasonScopeChanged {
		return reason
	}
	stored.Kind, stored.Namespaced = want.Kind, want.Namespaced
	if c.Configured().Resource.Version == "" {
		stored.Version = want.Version
	}
	if stored.Scope() == want.Scope() {
		return store.ReasonSchemaChanged
	}
	return reason
}
