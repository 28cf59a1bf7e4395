package pipeline_test

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/clocks/clockstest"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// TestAgeMetric_WrongClock: the metric of the age has no small number because the clock is wrong.
func TestAgeMetric_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for off, want := range map[time.Duration]float64{
		0: 60, -2 * time.Hour: math.Inf(1), -26 * year: math.Inf(1), 2 * time.Hour: 7260, 14 * year: (14*year + time.Minute).Seconds(),
	} {
		synctest.Test(t, func(t *testing.T) {
			clk := &clockstest.Moved{Off: off}
			stats := pipeline.NewStats(clk)
			state := &store.State{Synced: true, Checkpoint: store.Checkpoint{RV: "1", LastList: time.Now().Add(-time.Minute).UTC()}}
			age := func() float64 {
				all := make(chan prometheus.Metric, 100)
				pipeline.Sender(all).Collection("pods", clk.Now(), stats.Counters(), state, nil)
				close(all)
				for m := range all {
					if strings.Contains(m.Desc().String(), `"snapcache_collection_checkpoint_age_seconds"`) {
						var value dto.Metric
						require.NoError(t, m.Write(&value))
						return value.GetGauge().GetValue()
					}
				}
				return -1
			}
			require.InDelta(t, want, age(), 0.1, "clock moved by %s", off)
			stats.Phase(reflector.PhaseWatching, nil)
			require.Zero(t, age())
			stats.Phase(reflector.PhaseWaiting, nil)
			time.Sleep(time.Minute)
			for _, set := range []time.Duration{off, off + year, off - year, 0} {
				clk.Off = set
				require.InDelta(t, 60, age(), 0.1, "its watch has ended a minute ago; the clock was set by %s", set-off)
			}
		})
	}
}
