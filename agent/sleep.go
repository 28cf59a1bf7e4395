package agent

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// sleep waits for so long, or until ctx ends, whose error it returns then.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) error {
	return sleepUnlessWoken(ctx, c, d, nil)
}

// sleepUnlessWoken waits for so long, or until woken has a value or is closed, or until ctx
// ends, whose error it returns then.
func sleepUnlessWoken(ctx context.Context, c clock.Clock, d time.Duration, woken <-chan struct{}) error {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
	case <-woken:
	}
	return nil
}
