package collection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestEventRate compares the counts of the last hour with those of a plain list of all events, at
// random times.
func TestEventRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r eventRate
		var events []int64
		var passed time.Duration
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			passed += time.Duration(rapid.SampledFrom([]int{0, 1, 59, 60, 61, 600, 3540, 3600, 3660, 9000}).Draw(t, "seconds")) * time.Second
			if rapid.Bool().Draw(t, "event") {
				r.add(passed)
				events = append(events, int64(passed/time.Minute))
				continue
			}
			want := make([]int64, 60)
			for _, e := range events {
				if ago := int64(passed/time.Minute) - e; ago < 60 {
					want[59-ago]++
				}
			}
			require.Equal(t, want, r.last(passed))
		}
	})
}

// TestEventRate_ClockGoesBack counts on if less time has passed than before.
func TestEventRate_ClockGoesBack(t *testing.T) {
	var r eventRate
	r.add(10 * time.Minute)
	r.add(time.Minute)
	require.EqualValues(t, 2, r.last(0)[59])
}
