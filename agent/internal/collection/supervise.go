package collection

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/upstream"
)

// pausedTask is work that must not run beside the collection's writer.
type pausedTask struct {
	do   func() error
	done chan error
}

// supervise opens the collection and keeps it up to date until ctx ends. While it is paused it runs
// the tasks, applies the pending spec, and then continues from the stored state.
func (c *Collection) supervise(ctx context.Context, cluster *upstream.Cluster, member *reflector.Member) error {
	for reopen := false; ; reopen = true {
		if err := c.prepare(ctx, cluster, reopen); err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		if !c.begin(stop) {
			stop()
			continue
		}
		err := c.run(running, cluster, member)
		stop()
		tasks, again := c.pause()
		if err == nil {
			err = ctx.Err()
		}
		for _, t := range tasks {
			if err != nil {
				t.done <- err
			} else {
				t.done <- t.do()
			}
		}
		if err != nil || len(tasks) == 0 && !again {
			return err
		}
	}
}

// begin registers the function that stops a run which is about to begin. It returns false if a
// pending spec has to be applied first.
func (c *Collection) begin(stop context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		return false
	}
	c.stop = stop
	return true
}

// pause notes that a run is over, and returns the tasks to run before the next, and whether there has to
// be one: a spec is pending, or restart was called.
func (c *Collection) pause() (tasks []*pausedTask, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop = nil
	tasks, c.tasks = c.tasks, nil
	again, c.supervision.again = c.next != nil || c.supervision.again, false
	return tasks, again
}

// restart ends the run, if there is one, and begins another, which opens the collection again: as the
// resource that the server serves now, if that is not nil.
func (c *Collection) restart(is *upstream.Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil {
		return
	}
	if is != nil {
		c.supervision.found = is
	}
	c.supervision.again = true
	c.stop()
}

// Desired returns the spec that is pending, or else the one in force.
func (c *Collection) Desired() Spec {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		return c.next.Spec
	}
	return c.spec
}

// Configure makes next the pending spec and stops the collection, which applies the spec before it
// runs again. The returned channel is closed when the spec is applied. A spec that was still
// pending is replaced, and its channel is never closed.
func (c *Collection) Configure(next Spec) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = &pendingSpec{next, make(chan struct{})}
	if c.stop != nil {
		c.stop()
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return c.next.applied
}

// applySpec installs the pending spec, if any, and the resource of a restart. Only the collection's own
// goroutine calls it, while the collection does not run.
func (c *Collection) applySpec() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.supervision.found != nil {
		c.resource, c.supervision.found = c.supervision.found, nil
	}
	if c.next == nil {
		return
	}
	if c.next.Entry.Resource.Version != c.spec.Entry.Resource.Version {
		// The server has to name the resource in that version. Until that version is listed, the
		// stored objects are served.
		c.resource, c.reloaded = nil, true
	}
	close(c.next.applied)
	c.spec, c.next = c.next.Spec, nil
}

// errNotRunning means that a collection can't be paused.
var errNotRunning = errors.New("it does not run at the moment")

// Pause stops the collection, calls do, and resumes the collection. It returns do's error.
func (c *Collection) Pause(ctx context.Context, do func() error) error {
	t := &pausedTask{do: do, done: make(chan error, 1)}
	c.mu.Lock()
	if c.stop == nil {
		c.mu.Unlock()
		return errNotRunning
	}
	c.tasks = append(c.tasks, t)
	c.stop()
	c.mu.Unlock()
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Supervisors run the goroutines of collections in a group. Only one goroutine at a time uses them.
type Supervisors struct {
	Cluster *upstream.Cluster
	Group   *errgroup.Group
	Running context.Context //nolint:containedctx // the group's context

	history reflector.History
}

// supervision is the goroutine of a collection.
type supervision struct {
	end   context.CancelFunc
	ended chan struct{}

	// Collection.mu guards these, for the next run.
	again bool               // there is one
	found *upstream.Resource // its resource; nil for the same
}

// Start supervises a collection until the group ends, or it is stopped.
func (s *Supervisors) Start(c *Collection) {
	ctx, end := context.WithCancel(s.Running)
	c.supervision.end, c.supervision.ended = end, make(chan struct{})
	member := s.history.Join(true)
	s.Group.Go(func() error {
		defer close(c.supervision.ended)
		defer end()
		err := c.supervise(ctx, s.Cluster, member)
		if ctx.Err() != nil && s.Running.Err() == nil {
			return nil // only this collection was stopped
		}
		return err
	})
}

// Stop ends a collection's goroutine, and returns once the queued changes are stored.
func (s *Supervisors) Stop(c *Collection) {
	c.supervision.end()
	<-c.supervision.ended
}
