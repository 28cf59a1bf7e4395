package sleep_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
)

// TestDaily: errors are retried with growing waits, which begin again after a success, and a success is
// followed by a day of rest.
func TestDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := []error{errors.New("1"), errors.New("2"), errors.New("3"), nil, errors.New("4"), nil}
		ctx, cancel := context.WithCancel(t.Context())
		var waits []time.Duration
		last := time.Now()
		sleep.Daily(ctx, clock.RealClock{}, slog.New(slog.DiscardHandler), time.Minute, func(context.Context) error {
			waits = append(waits, time.Since(last))
			last = time.Now()
			if len(waits) == len(results) {
				cancel()
			}
			return results[len(waits)-1]
		})
		const day = 24 * time.Hour
		for i, want := range []time.Duration{time.Minute, time.Second, 2 * time.Second, 4 * time.Second, day, time.Second} {
			require.GreaterOrEqual(t, waits[i], want, i)
			require.Less(t, waits[i], want+want/2+time.Second, i)
		}
	})
}
