package sleep_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
)

// TestRetry: a wait between retries ends after its time, with its context, when it is woken, and when
// the bell rings: then for every wait of the context.
func TestRetry(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after time.Duration // when act is called
		act   func(b *sleep.Bell, wake chan struct{}, cancel func())
		took  time.Duration
		woken bool
	}{
		{"the time is over", 0, nil, time.Hour, false},
		{"the bell rings", time.Minute, func(b *sleep.Bell, _ chan struct{}, _ func()) { b.Ring() }, time.Minute, true},
		{"woken", time.Minute, func(_ *sleep.Bell, wake chan struct{}, _ func()) { close(wake) }, time.Minute, true},
		{"the context ends", time.Minute, func(_ *sleep.Bell, _ chan struct{}, cancel func()) { cancel() }, time.Minute, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, wake := &sleep.Bell{}, make(chan struct{})
				b.Ring() // for no one, and not for a later wait
				ctx, cancel := context.WithCancel(sleep.WithBell(t.Context(), b))
				defer cancel()
				if tc.act != nil {
					time.AfterFunc(tc.after, func() { tc.act(b, wake, cancel) })
				}
				var waits sync.WaitGroup
				for range 3 {
					waits.Go(func() {
						began := time.Now()
						require.Equal(t, tc.woken, sleep.Retry(ctx, clock.RealClock{}, time.Hour, wake))
						require.Equal(t, tc.took, time.Since(began))
					})
				}
				waits.Wait()
			})
		})
	}
	t.Run("no bell", func(t *testing.T) {
		require.False(t, sleep.Retry(t.Context(), clock.RealClock{}, time.Nanosecond, nil))
	})
}

func TestDelay(t *testing.T) {
	for _, tc := range []struct{ backoff, asked, want time.Duration }{
		{time.Second, 0, time.Second},
		{time.Second, time.Millisecond, time.Second},
		{time.Second, 37 * time.Second, 37 * time.Second},
		{time.Second, 2 * time.Minute, 2 * time.Minute},
		{time.Second, 10 * time.Minute, 2 * time.Minute},
		{time.Second, time.Hour, 2 * time.Minute},
		{time.Second, 1 << 62, 2 * time.Minute},
		{time.Second, -time.Hour, time.Second},
		{30 * time.Second, time.Hour, 2 * time.Minute},
		{time.Hour, time.Minute, time.Hour}, // a configured backoff is the user's own
	} {
		require.Equal(t, tc.want, sleep.Delay(tc.backoff, tc.asked), "%v, asked for %v", tc.backoff, tc.asked)
	}
}
