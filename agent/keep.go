package agent

import (
	"context"
	"errors"
	"time"

	"github.com/snapcache/snapcache/upstream"
)

// reopenEvery is how often a collection is tried to be opened that can't be.
const reopenEvery = 5 * time.Second

// interruption stops a collection for something that can't be done beside its writer.
type interruption struct {
	do   func() error
	done chan error
}

func (*interruption) Error() string { return "interrupted" }

// keep resolves a collection and keeps it in step until ctx ends. Whoever interrupts it
// finds it at rest, and then it goes on with what is stored by then.
func (a *Agent) keep(ctx context.Context, c *collection, cluster *upstream.Cluster) error {
	for {
		if err := a.resolve(ctx, c, cluster); err != nil {
			return err
		}
		running, stop := context.WithCancelCause(ctx)
		c.setStop(stop)
		err := c.run(running, cluster)
		c.setStop(nil)
		stop(nil)
		var i *interruption
		if !errors.As(context.Cause(running), &i) {
			return err
		}
		if err == nil && ctx.Err() == nil {
			if err = i.do(); err == nil {
				a.reopen(ctx, c)
			}
		}
		i.done <- err
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// reopen opens a collection anew, as often as it takes: the disk may be full.
func (a *Agent) reopen(ctx context.Context, c *collection) {
	for {
		err := c.open(a.db, *c.resource)
		if err == nil {
			return
		}
		c.log.Error("the collection can't be opened; it is tried again", "error", err)
		if sleep(ctx, a.clock, reopenEvery) != nil {
			return
		}
	}
}

func (c *collection) setStop(stop context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop = stop
}

// errNotRunning says that a collection is not there to be interrupted.
var errNotRunning = errors.New("it does not run at the moment")

// interrupt stops the collection, calls do, and lets it go on. It returns do's error.
func (c *collection) interrupt(ctx context.Context, do func() error) error {
	i := &interruption{do: do, done: make(chan error, 1)}
	c.mu.Lock()
	stop := c.stop
	c.mu.Unlock()
	if stop == nil {
		return errNotRunning
	}
	stop(i)
	select {
	case err := <-i.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
