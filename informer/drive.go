package informer

import (
	"context"
	"errors"
	"time"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/reflector"
)

// drainTimeout limits how long a stop waits for queued changes to be stored.
const drainTimeout = 10 * time.Second

// Drive runs a reflector and the loop that takes from its queue, until ctx ends or one of them
// fails, and then stores the queued changes. The end of ctx and a closed queue are no error. When
// Drive returns, both have ended.
func Drive(ctx context.Context, r *reflector.Reflector, queue *deltafifo.Queue, loop *Loop) error {
	// The loop outlives ctx by as long as it takes to store what is queued.
	draining, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	// A closed queue frees a reflector that waits for room in it.
	defer context.AfterFunc(running, queue.Close)()
	done := make(chan error, 1)
	go func() {
		done <- loop.Run(draining)
		cancel()
	}()
	err := r.Run(running)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // the end of ctx, which is no error
	}
	queue.Close()
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
