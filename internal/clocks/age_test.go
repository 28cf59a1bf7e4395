package clocks_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/clocks"
)

func TestAge(t *testing.T) {
	stored := time.Date(2026, time.March, 1, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name      string
		at        time.Time
		then, ran time.Duration // the run times of the stamp and of now
		now       time.Duration // the wall clock, since stored
		known     bool
		is        time.Duration
	}{
		{"right", stored, 0, time.Minute, time.Hour, true, time.Hour},
		{"at the same moment", stored, 0, 0, 0, true, 0},
		{"two hours behind", stored, 0, time.Minute, -2 * time.Hour, false, time.Minute},
		{"26 years behind", stored, 0, time.Minute, -26 * 365 * 24 * time.Hour, false, time.Minute},
		{"14 years ahead", stored, 0, time.Minute, 14 * 365 * 24 * time.Hour, true, 14 * 365 * 24 * time.Hour},
		{"set back, but not before the time", stored, time.Hour, 4 * time.Hour, time.Hour, true, 3 * time.Hour},
		{"of a file that had run for longer", stored, time.Hour, time.Minute, time.Hour, true, time.Hour},
		{"no time", time.Time{}, 0, time.Minute, time.Hour, false, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := clocks.AgeOf(clocks.Stamp{At: tc.at, Ran: tc.then}, clocks.Stamp{At: stored.Add(tc.now), Ran: tc.ran})
			require.Equal(t, tc.known, a.Known())
			require.Equal(t, tc.is, a.Duration())
			require.Equal(t, tc.known, a.AtMost(tc.is))
			require.False(t, a.AtMost(tc.is-1))
			seconds := tc.is.Seconds()
			if !tc.known {
				seconds = math.Inf(1)
			}
			require.InDelta(t, seconds, a.Seconds(), 0)
		})
	}
	require.False(t, clocks.Age{}.Known(), "the zero Age is unknown")
	require.False(t, clocks.Age{}.AtMost(math.MaxInt64))
}
