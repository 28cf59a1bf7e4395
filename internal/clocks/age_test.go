package clocks_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/internal/clocks/clockstest"
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

// TestAge_WrongClock checks the promises of ages with clocks that are right, behind and ahead when a time is noted,
// then set, and right again: for a time of this process, for one that was stored before, and for one that is stored
// with the run time of its file.
func TestAge_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	offs := []time.Duration{0, -2 * time.Hour, 2 * time.Hour, -26 * year, 14 * year}
	for _, noted := range offs {
		for _, set := range offs {
			synctest.Test(t, func(t *testing.T) {
				clk := &clockstest.Moved{Off: noted}
				now := func() clocks.Stamp { return clocks.Stamp{At: clk.Now()} }
				own := now()
				stored := clocks.Stamp{At: own.At.UTC(), Ran: time.Hour} // of a file that had run for an hour
				time.Sleep(time.Hour)
				began := clk.Now()
				for _, off := range []time.Duration{set, set + year, set - 2*year, noted, 0} {
					clk.Off = off
					time.Sleep(time.Hour)
					passed, ran := clk.Since(own.At), clk.Since(began)
					jump := off - noted

					a := clocks.AgeOf(own, now())
					require.True(t, a.Known())
					require.Equal(t, passed, a.Duration(), "a time of this process is as old as it is")
					require.True(t, a.AtMost(passed))
					require.False(t, a.AtMost(passed-1))

					for _, s := range []clocks.Age{
						clocks.AgeOf(clocks.Stamp{At: stored.At}, clocks.Stamp{At: clk.Now(), Ran: ran}),
						clocks.AgeOf(stored, clocks.Stamp{At: clk.Now(), Ran: stored.Ran + ran}),
					} {
						require.Equal(t, passed+jump >= 0, s.Known(), "it is known unless the clock is behind it")
						require.GreaterOrEqual(t, s.Duration(), ran, "setting the clock makes nothing younger than this process")
						require.False(t, s.AtMost(ran-1), "nor fresh")
						if jump == 0 {
							require.Equal(t, passed, s.Duration(), "right again: nothing waits for a date")
						}
						if !s.Known() {
							require.Equal(t, ran, s.Duration(), "nor is it old enough to be deleted before that has passed")
						}
					}
				}
			})
		}
	}
}
