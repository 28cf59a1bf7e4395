package agent

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// sleep waits for so long, or until ctx ends, whose error it returns then.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) error {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
