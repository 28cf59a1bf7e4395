// Package sleep has waits that a context ends.
package sleep

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// For waits for d. It returns the error of ctx if that ends first.
func For(ctx context.Context, c clock.Clock, d time.Duration) error {
	return UnlessWoken(ctx, c, d, nil)
}

// UnlessWoken waits for d, or until woken has a value or is closed. It returns the error of ctx if
// that ends first.
func UnlessWoken(ctx context.Context, c clock.Clock, d time.Duration, woken <-chan struct{}) error {
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
