package collection

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/agent/internal/exit"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// resolveTimeout is how long the server may take to name a resource.
const resolveTimeout = time.Minute

// prepare applies the pending spec and opens the collection, unless it is open; if reopen is set, in
// any case. It retries until ctx ends: the server may be down, or the disk full.
//
// Only a mistake in the configuration ends the agent: a resource that the server does not have or,
// if nothing is cached, a credential that the server does not accept. An agent with cached objects
// keeps serving them.
func (c *Collection) prepare(ctx context.Context, cluster *upstream.Cluster, reopen bool) error {
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Cap: 30 * time.Second, Factor: 2, Jitter: 1, Steps: 8}
	for {
		c.applySpec()
		if c.stored != nil && !reopen {
			return nil
		}
		r, err := c.lookUp(ctx, cluster)
		d := backoff.Step()
		if err == nil {
			if err = c.Open(r); err == nil || !reopen && !c.reloaded {
				return err
			}
			c.Log.Error("the collection can't be opened; retrying", "wait", d.Round(time.Millisecond), "error", err)
		} else {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := c.fatal(err); err != nil {
				return err
			}
			c.Tracker.Phase(reflector.PhaseWaiting, err)
			c.Log.Info("waiting for the server to name the resource", "wait", d.Round(time.Millisecond), "error", upstream.Explain(err))
		}
		if err := sleep.UnlessWoken(ctx, c.opts.Clock, d, c.wake); err != nil {
			return err
		}
	}
}

// lookUp returns the collection's resource. It asks the server once, unless the resource is known.
func (c *Collection) lookUp(ctx context.Context, cluster *upstream.Cluster) (upstream.Resource, error) {
	if c.resource != nil {
		return *c.resource, nil
	}
	c.Tracker.progress.begin()
	defer c.Tracker.progress.end()
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	name := c.Configured().Resource
	return cluster.Resolve(ctx, name.Resource, name.Version, name.Group)
}

// fatal returns the error with which the agent should end, nil for none.
func (c *Collection) fatal(err error) error {
	if c.reloaded {
		return nil // a reload does not end an agent that has run without it
	}
	if errors.As(err, new(*upstream.NoResourceError)) {
		return exit.Usagef("%s.resource: %w", c.field(), err)
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
