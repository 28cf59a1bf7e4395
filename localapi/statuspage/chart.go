package statuspage

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
)

// The units of the chart; the page scales it.
const (
	barWidth    = 3
	barStep     = 4
	chartHeight = 40
)

// chart is a bar chart of an hour's events, a bar per minute.
type chart struct {
	Width, Height int
	Path          string // path data for SVG
	Label         string // the content in words
	Most          string // caption of the highest bar
}

// newChart draws counts, the oldest first. It returns nil if there are none.
func newChart(counts []int64) *chart {
	if len(counts) == 0 {
		return nil
	}
	var most, all int64
	for _, n := range counts {
		most, all = max(most, n), all+n
	}
	c := &chart{Width: len(counts)*barStep - (barStep - barWidth), Height: chartHeight}
	var path strings.Builder
	for i, n := range counts {
		if n <= 0 {
			continue
		}
		// A single event is visible even in a busy hour.
		height := max(1, float64(n)/float64(most)*chartHeight)
		fmt.Fprintf(&path, "M%d %dv-%.4gh%dv%.4gz", i*barStep, chartHeight, height, barWidth, height)
	}
	c.Path = path.String()
	c.Most = "most in a minute: " + humanize.Comma(most)
	if most == 0 {
		c.Most = "nothing happened"
	}
	c.Label = fmt.Sprintf("%s in the last hour, %s", english.Plural(int(all), "event", ""), c.Most)
	return c
}
