package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The counts of the last hour are those of a plain list of all events, whenever somebody
// looks and however long nothing came.
func TestMinutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m minutes
		var events []int64
		var passed time.Duration
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			passed += time.Duration(rapid.SampledFrom([]int{0, 1, 59, 60, 61, 600, 3540, 3600, 3660, 9000}).Draw(t, "seconds")) * time.Second
			if rapid.Bool().Draw(t, "event") {
				m.add(passed)
				events = append(events, int64(passed/time.Minute))
				continue
			}
			want := make([]int64, 60)
			for _, e := range events {
				if ago := int64(passed/time.Minute) - e; ago < 60 {
					want[59-ago]++
				}
			}
			require.Equal(t, want, m.last(passed))
		}
	})
}

// An agent that is up for a shorter time than the clock thinks counts on.
func TestMinutesBackwards(t *testing.T) {
	var m minutes
	m.add(10 * time.Minute)
	m.add(time.Minute)
	require.EqualValues(t, 2, m.last(0)[59])
}
