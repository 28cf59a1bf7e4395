package collection

import (
	"context"
	"errors"
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

// resolve asks the server for the collection's resource, unless the database has it, and opens the
// collection. It retries until ctx ends.
//
// Only a mistake in the configuration ends the agent: a resource that the server does not have or,
// if nothing is cached, a credential that the server does not accept. An agent with cached objects
// keeps serving them.
func (c *Collection) resolve(ctx context.Context, cluster *upstream.Cluster) error {
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Cap: 30 * time.Second, Factor: 2, Jitter: 1, Steps: 8}
	for {
		if c.stored != nil {
			return nil
		}
		c.applySpec()
		r, err := c.lookUp(ctx, cluster)
		if err == nil {
			if err = c.Open(r); err == nil || !c.reloaded {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.fatal(err); err != nil {
			return err
		}
		c.Tracker.Phase(reflector.PhaseWaiting, err)
		d := backoff.Step()
		c.Log.Info("waiting for the server to name the resource", "wait", d.Round(time.Millisecond), "error", upstream.Explain(err))
		if err := sleep.UnlessWoken(ctx, c.opts.Clock, d, c.wake); err != nil {
			return err
		}
	}
}

// lookUp asks the server once for the collection's resource.
func (c *Collection) lookUp(ctx context.Context, cluster *upstream.Cluster) (upstream.Resource, error) {
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
			return &exit.Error{Code: exit.Failure, Err: upstream.Explain(err)}
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
	for _, info := range infos {
		if synced(db, info.ID) {
			return true
		}
	}
	return false
}

func synced(db store.DB, id string) bool {
	v, err := db.View(id)
	if err != nil {
		return false
	}
	defer v.Close()
	return v.State().Synced
}
