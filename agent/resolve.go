package agent

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// resolveTimeout is how long the server may take to name a resource.
const resolveTimeout = time.Minute

// resolve asks the server what a collection's resource is, where the database
// does not know it, and opens the collection. It tries until ctx ends.
//
// What can only be a mistake in the configuration ends the agent: a resource that
// the server does not have and, while nothing at all is cached, a server that does
// not accept us. An agent that has something to serve goes on serving it.
func (a *Agent) resolve(ctx context.Context, c *collection, cluster *upstream.Cluster) error {
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Cap: 30 * time.Second, Factor: 2, Jitter: 1, Steps: 8}
	for {
		if c.stored != nil {
			return nil
		}
		c.reconfigure()
		r, err := c.lookUp(ctx, cluster)
		if err == nil {
			if err = c.open(a.db, r); err == nil || !c.reloaded {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := a.fatal(c, err); err != nil {
			return err
		}
		phased{c.track, c}.Phase(reflector.PhaseWaiting, err)
		d := backoff.Step()
		c.log.Info("waiting for the server to name the resource", "wait", d.Round(time.Millisecond), "error", upstream.Described(err))
		if err := sleepUnlessWoken(ctx, c.clock, d, c.wake); err != nil {
			return err
		}
	}
}

// lookUp asks the server once what the collection's resource is.
func (c *collection) lookUp(ctx context.Context, cluster *upstream.Cluster) (upstream.Resource, error) {
	c.pulse.begin()
	defer c.pulse.end()
	hang()
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	name := c.configured().Resource
	return cluster.Resolve(ctx, name.Resource, name.Version, name.Group)
}

// fatal returns the error with which the agent should end, nil for none.
func (a *Agent) fatal(c *collection, err error) error {
	if c.reloaded {
		return nil // a reload does not end an agent that has run without it
	}
	if errors.As(err, new(*upstream.NoResourceError)) || errors.Is(err, upstream.ErrNotWatchable) {
		return usage("%s.resource: %w", c.where(), err)
	}
	switch upstream.Kind(err) {
	case upstream.Untrusted, upstream.Unauthorized:
		if !a.anySynced() {
			return &ExitError{Code: ExitFailure, Err: upstream.Described(err)}
		}
	}
	return nil
}

// anySynced says that there is something to serve.
func (a *Agent) anySynced() bool {
	infos, err := a.db.Collections()
	if err != nil {
		return true // not known: go on
	}
	for _, info := range infos {
		if synced(a.db, info.ID) {
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
