package sleep

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

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
