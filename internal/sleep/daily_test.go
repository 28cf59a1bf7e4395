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

// TestDailyWoken: a value of the channel ends a wait.
func TestDailyWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		woken := make(chan struct{}, 1)
		reads := make(chan time.Time, 10)
		go sleep.Daily(ctx, clock.RealClock{}, slog.New(slog.DiscardHandler), time.Minute, woken, func(context.Context) error {
			reads <- time.Now()
			return nil
		})
		begun := time.Now()
		time.Sleep(time.Second)
		woken <- struct{}{}
		require.Equal(t, time.Second, (<-reads).Sub(begun))
		time.Sleep(time.Second)
		woken <- struct{}{}
		require.Equal(t, 2*time.Second, (<-reads).Sub(begun))
		require.GreaterOrEqual(t, (<-reads).Sub(begun), 24*time.Hour)
	})
}

// TestDaily: errors are retried with growing waits, which begin again after a success, and a success is
// followed by a day of rest.
func TestDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := []error{errors.New("1"), errors.New("2"), errors.New("3"), nil, errors.New("4"), nil}
		ctx, cancel := context.WithCancel(t.Context())
		var waits []time.Duration
		last := time.Now()
		sleep.Daily(ctx, clock.RealClock{}, slog.New(slog.DiscardHandler), time.Minute, nil, func(context.Context) error {
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
