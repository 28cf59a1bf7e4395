// Package sleep has waits that a context ends, and the waits between retries.
package sleep

import (
	"context"
	"log/slog"
	"math"
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

// Backoff returns the waits between retries: first, then twice as long each time, up to most.
// Jitter is the largest random part that is added to each, as a factor. A copy of it starts over.
func Backoff(first, most time.Duration, jitter float64) wait.Backoff {
	return wait.Backoff{Duration: first, Cap: most, Factor: 2, Jitter: jitter, Steps: math.MaxInt}
}

// Daily calls read after the time first and then each day, and when woken has a value, until ctx ends.
// After an error, which it logs, it tries again soon, and then less and less often. The bell of ctx and
// woken end the waits for a retry.
func Daily(ctx context.Context, c clock.Clock, log *slog.Logger, first time.Duration, woken <-chan struct{}, read func(context.Context) error) {
	retry := Backoff(time.Second, 10*time.Minute, 0.5)
	backoff := retry
	for d := first; UnlessWoken(ctx, c, d, woken) == nil; d = wait.Jitter(24*time.Hour, 0.2) {
		for err := read(ctx); err != nil && ctx.Err() == nil; err = read(ctx) {
			d := backoff.Step()
			log.Debug("what the server publishes can't be read; retrying", "wait", d.Round(time.Second), "error", err)
			if Retry(ctx, c, d, woken) {
				backoff = retry
			}
			if ctx.Err() != nil {
				return
			}
		}
		backoff = retry
	}
}
