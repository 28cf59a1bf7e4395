package agent

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/snapcache/snapcache/upstream"
)

// keepers are the collections that are kept in step. Only one goroutine at a time uses
// them.
type keepers struct {
	agent   *Agent
	cluster *upstream.Cluster
	running context.Context //nolint:containedctx // that of the group, which all of them live in
	group   *errgroup.Group
	kept    map[*collection]keeper
}

// keeper is how to end the keeping of one.
type keeper struct {
	stop  context.CancelFunc
	ended chan struct{}
}

func newKeepers(running context.Context, group *errgroup.Group, a *Agent, cluster *upstream.Cluster) *keepers {
	return &keepers{agent: a, cluster: cluster, running: running, group: group, kept: map[*collection]keeper{}}
}

// start keeps a collection until all end, or it is stopped.
func (k *keepers) start(c *collection) {
	ctx, stop := context.WithCancel(k.running)
	ended := make(chan struct{})
	k.kept[c] = keeper{stop, ended}
	k.group.Go(func() error {
		defer close(ended)
		defer stop()
		err := k.agent.keep(ctx, c, k.cluster)
		if ctx.Err() != nil && k.running.Err() == nil {
			return nil // it alone was stopped
		}
		return err
	})
}

// stop ends the keeping of a collection, once what is queued is stored.
func (k *keepers) stop(c *collection) {
	kept := k.kept[c]
	delete(k.kept, c)
	kept.stop()
	<-kept.ended
}
