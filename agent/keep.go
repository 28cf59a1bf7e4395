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

// keep resolves a collection and keeps it in step until ctx ends. Whoever interrupts it
// finds it at rest, and then it goes on with what is stored by then, and as it is
// configured by then.
func (a *Agent) keep(ctx context.Context, c *collection, cluster *upstream.Cluster) error {
	for {
		if err := a.resolve(ctx, c, cluster); err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		if !c.begin(stop) {
			stop()
			a.reopen(ctx, c)
			continue
		}
		err := c.run(running, cluster)
		stop()
		interruptions, configured := c.rest()
		if err == nil {
			err = ctx.Err()
		}
		for _, i := range interruptions {
			if err != nil {
				i.done <- err
			} else {
				i.done <- i.do()
			}
		}
		if err != nil || len(interruptions) == 0 && !configured {
			return err
		}
		a.reopen(ctx, c)
	}
}

// reopen opens a collection anew, as often as it takes: the disk may be full. One whose
// resource has to be resolved is left to that.
func (a *Agent) reopen(ctx context.Context, c *collection) {
	for {
		if c.reconfigure(); c.resource == nil {
			return
		}
		err := c.open(a.db, *c.resource)
		if err == nil {
			return
		}
		c.log.Error("the collection can't be opened; it is tried again", "error", err)
		if sleepUnlessWoken(ctx, c.clock, reopenEvery, c.wake) != nil {
			return
		}
	}
}

// begin notes how to stop a run that is about to begin. It says false where the
// collection is to be configured anew before it.
func (c *collection) begin(stop context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		return false
	}
	c.stop = stop
	return true
}

// rest notes that a run is over, and returns what to do before the next, and whether the
// collection is to be configured anew.
func (c *collection) rest() (interruptions []*interruption, configured bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop = nil
	interruptions, c.interruptions = c.interruptions, nil
	return interruptions, c.next != nil
}

// configure has the collection go on as next says, and returns a channel that is closed
// when it does. A call replaces one before that did not come so far, whose channel is not
// closed.
func (c *collection) configure(next wanted) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next, c.adopted = &next, make(chan struct{})
	if c.stop != nil {
		c.stop()
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return c.adopted
}

// reconfigure puts what is to be in force in force. Only the collection's own goroutine
// calls it, while the collection does not run.
func (c *collection) reconfigure() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		return
	}
	if c.next.entry.Resource.Version != c.entry.Resource.Version {
		// The server has to say what it is in that version. What is stored can be read
		// until then, and until it is listed.
		c.resource, c.stored, c.reloaded = nil, nil, true
	}
	c.wanted, c.next = *c.next, nil
	close(c.adopted)
}

// errNotRunning says that a collection is not there to be interrupted.
var errNotRunning = errors.New("it does not run at the moment")

// interrupt stops the collection, calls do, and lets it go on. It returns do's error.
func (c *collection) interrupt(ctx context.Context, do func() error) error {
	i := &interruption{do: do, done: make(chan error, 1)}
	c.mu.Lock()
	if c.stop == nil {
		c.mu.Unlock()
		return errNotRunning
	}
	c.interruptions = append(c.interruptions, i)
	c.stop()
	c.mu.Unlock()
	select {
	case err := <-i.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
