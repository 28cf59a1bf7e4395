package collection

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/internal/clocks/clockstest"
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// TestFreshness_WrongClock: without the server nothing is fresh because the clock is wrong, neither after a start
// nor when it is set while the agent runs.
func TestFreshness_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, off := range map[string]time.Duration{
		"right": 0, "two hours behind": -2 * time.Hour, "26 years behind": -26 * year,
		"two hours ahead": 2 * time.Hour, "14 years ahead": 14 * year,
	} {
		t.Run(name, func(t *testing.T) {
			clk := &clockstest.Moved{Off: off}
			c := New(Spec{ID: "pods"}, Options{Clock: clk, Log: slog.New(slog.DiscardHandler)})
			c.pipeline = &pipeline.Pipeline{Queue: deltafifo.New(deltafifo.Options{})}
			stored, err := memory.New().Open(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod"})
			require.NoError(t, err)
			r, err := stored.Replace()
			require.NoError(t, err)
			require.NoError(t, r.Commit(store.Checkpoint{RV: "1", LastList: time.Now().Add(-time.Minute).UTC()}))
			is := func() kubeapi.Freshness { return c.freshness(stored) }

			f := is()
			require.False(t, f.Connected, "an agent that has not reached the server")
			require.Equal(t, off >= 0, f.Age(clk.Now()).Known())
			require.False(t, f.Age(clk.Now()).AtMost(50*time.Second))

			c.Tracker.Phase(reflector.PhaseWatching, nil)
			require.True(t, is().Connected)
			c.Tracker.Phase(reflector.PhaseWaiting, nil)
			for _, set := range []time.Duration{off, off + year, off - year, off - 2*time.Hour, 0} {
				clk.Off = set
				f := is()
				require.True(t, f.Connected, "its watch has just ended; the clock was set by %s", set-off)
				require.True(t, f.Age(clk.Now()).AtMost(connectedFor))
			}
		})
	}
}
