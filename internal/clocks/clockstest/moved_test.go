package clockstest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/clocks/clockstest"
)

// TestMoved: the wall clock is off by what it is moved, and the monotonic one is not.
func TestMoved(t *testing.T) {
	check := func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		c := &clockstest.Moved{}
		for _, off := range []time.Duration{0, -2 * time.Hour, -26 * year, 14*year + time.Millisecond} {
			c.Off = 0
			start, wall := c.Now(), time.Now()
			c.Off = off
			time.Sleep(time.Millisecond)
			now := c.Now()
			require.InDelta(t, time.Millisecond, now.Sub(start), float64(time.Second), "moved by %s", off)
			require.InDelta(t, time.Millisecond, c.Since(start), float64(time.Second))
			require.InDelta(t, off+time.Millisecond, now.Round(0).Sub(wall.Round(0)), float64(time.Second))
		}
	}
	t.Run("for real", check)
	t.Run("in a bubble", func(t *testing.T) { synctest.Test(t, check) })
}
