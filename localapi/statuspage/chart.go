package statuspage

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
)

// The chart's own units: the page scales it.
const (
	barWidth    = 3
	barStep     = 4
	chartHeight = 40
)

// chart is the events of an hour, drawn: a bar a minute.
type chart struct {
	Width, Height int
	Path          string // of an SVG
	Label         string // what can be seen, in words
	Most          string // the highest bar, as a caption
}

// newChart draws counts, the oldest first; nil where there are none.
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
		// One event in a busy hour is to be seen, too.
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
