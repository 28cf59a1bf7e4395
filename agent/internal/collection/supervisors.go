package collection

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/snapcache/snapcache/upstream"
)

// Supervisors run the goroutines of collections. Only one goroutine at a time uses them.
type Supervisors struct {
	cluster      *upstream.Cluster
	running      context.Context //nolint:containedctx // the group's context
	group        *errgroup.Group
	byCollection map[*Collection]supervisor
}

// supervisor is the handle on one collection's goroutine.
type supervisor struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// NewSupervisors returns supervisors whose goroutines run in group, whose context is running.
func NewSupervisors(running context.Context, group *errgroup.Group, cluster *upstream.Cluster) *Supervisors {
	return &Supervisors{cluster: cluster, running: running, group: group, byCollection: map[*Collection]supervisor{}}
}

// Start supervises a collection until the group ends, or it is stopped.
func (s *Supervisors) Start(c *Collection) {
	ctx, stop := context.WithCancel(s.running)
	ended := make(chan struct{})
	s.byCollection[c] = supervisor{stop, ended}
	s.group.Go(func() error {
		defer close(ended)
		defer stop()
		err := c.supervise(ctx, s.cluster)
		if ctx.Err() != nil && s.running.Err() == nil {
			return nil // only this collection was stopped
		}
		return err
	})
}

// Stop ends a collection's goroutine, and returns once the queued changes are stored.
func (s *Supervisors) Stop(c *Collection) {
	x := s.byCollection[c]
	delete(s.byCollection, c)
	x.stop()
	<-x.ended
}
