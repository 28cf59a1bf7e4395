package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/reflector"
)

// drainTimeout limits how long a stop waits for queued changes to be stored.
const drainTimeout = 10 * time.Second

// Pipeline keeps one collection up to date: a reflector reads from the server into a queue, and a
// loop takes from the queue into the store and hands the changes to the handlers.
type Pipeline struct {
	Queue     *deltafifo.Queue
	Reflector *reflector.Reflector
	loop      *Loop
}

// New returns a pipeline that continues at the checkpoint of l.Collection. It sets the queue and the
// checkpoint of both parts; the loop takes Logger from r, the reflector Clock from l.
func New(r reflector.Options, l LoopOptions) *Pipeline {
	known := KnownObjects{Collection: l.Collection, Unversioned: l.Unversioned}
	queue := deltafifo.New(deltafifo.Options{KnownObjects: known})
	r.Checkpoint = l.Collection.State().Checkpoint
	queue.Start(r.Checkpoint.RV)
	r.Queue, l.Queue, r.Clock = queue, queue, l.Clock
	l.Logger = r.Logger
	return &Pipeline{Queue: queue, Reflector: reflector.New(r), loop: NewLoop(l)}
}

// Run runs the pipeline once, until ctx ends or one of its parts fails, and then stores the queued
// changes. The end of ctx is no error. When Run returns, all parts have ended.
func (p *Pipeline) Run(ctx context.Context) error {
	// The loop runs on after the end of ctx until the queued changes are stored.
	draining, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	// Closing the queue unblocks a reflector that waits for space in it.
	defer context.AfterFunc(running, p.Queue.Close)()
	done := make(chan error, 1)
	go func() {
		done <- p.loop.Run(draining)
		cancel()
	}()
	err := p.Reflector.Run(running)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // the end of ctx, which is no error
	}
	p.Queue.Close()
	timer := time.AfterFunc(drainTimeout, stop)
	defer timer.Stop()
	return errors.Join(ignoreEnd(err), ignoreEnd(<-done))
}

func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, deltafifo.ErrClosed) {
		return nil
	}
	return err
}
