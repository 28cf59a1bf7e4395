package measure

import (
	"math"
	"slices"
)

// Spread summarises several measurements.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Count  int     `json:"count"`
}

// SpreadOf returns the spread of values, which may be empty. The median of an even number is the
// mean of the two in the middle.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + median) / 2
	}
	return Spread{Median: median, Low: sorted[0], High: sorted[len(sorted)-1], Count: len(sorted)}
}

// Percentile returns the value that p percent of values are at or below, by nearest rank; 0 for no
// values.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Exponent returns k of the curve y = c·xᵏ that is nearest to the points, by least squares of the
// logarithms: 0 means a cost independent of x, 1 a proportional cost. It is NaN unless there are
// two points with different x, all above 0.
func Exponent(points map[float64]float64) float64 {
	var n, sx, sy, sxx, sxy float64
	for x, y := range points {
		if x <= 0 || y <= 0 {
			return math.NaN()
		}
		lx, ly := math.Log(x), math.Log(y)
		n, sx, sy, sxx, sxy = n+1, sx+lx, sy+ly, sxx+lx*lx, sxy+lx*ly
	}
	if n < 2 {
		return math.NaN()
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
