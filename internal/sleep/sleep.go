// Package sleep has waits that a context ends.
package sleep

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
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

// Daily calls read after the time first and then each day, until ctx ends. After an error, which it
// logs, it tries again soon, and then less and less often.
func Daily(ctx context.Context, c clock.Clock, log *slog.Logger, first time.Duration, read func(context.Context) error) {
	retry := wait.Backoff{Duration: time.Second, Cap: 10 * time.Minute, Factor: 2, Jitter: 0.5, Steps: 12}
	backoff := retry
	for d := first; For(ctx, c, d) == nil; {
		if err := read(ctx); err != nil {
			d = backoff.Step()
			log.Debug("what the server publishes can't be read; retrying", "wait", d.Round(time.Second), "error", err)
			continue
		}
		backoff, d = retry, wait.Jitter(24*time.Hour, 0.2)
	}
}
