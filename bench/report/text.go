package report

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/snapcache/snapcache/bench/measure"
)

// seconds formats a time with about three digits.
func seconds(s float64) string {
	switch a := math.Abs(s); {
	case a < 0.0095:
		return fmt.Sprintf("%.1f ms", 1e3*s)
	case a < 0.95:
		return fmt.Sprintf("%.0f ms", 1e3*s)
	default:
		return fmt.Sprintf("%.1f s", s)
	}
}

// size formats bytes with two or three digits.
func size(n float64) string {
	if n < 0 {
		return "-" + size(-n)
	}
	return humanize.Bytes(uint64(n))
}

// percent formats a share; 0 is one that was not measured.
func percent(share float64) string {
	if share == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// number formats a number of things.
func number(n float64) string { return humanize.Comma(int64(math.Round(n))) }

// times formats a ratio.
func times(r float64) string {
	switch {
	case math.IsNaN(r) || math.IsInf(r, 0):
		return "?"
	case r < 10:
		return fmt.Sprintf("%.1fx", r)
	default:
		return humanize.Comma(int64(math.Round(r))) + "x"
	}
}

// withSpread formats a median, and its range if there are several values.
func withSpread(s measure.Spread, text func(float64) string) string {
	switch s.Count {
	case 0:
		return "-"
	case 1:
		return text(s.Median)
	}
	low, high := text(s.Low), text(s.High)
	if low == high {
		return low
	}
	return fmt.Sprintf("%s (%s to %s)", text(s.Median), low, high)
}
