package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/result"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a picture: its file name and SVG.
type Chart struct {
	Name string
	SVG  []byte
}

var (
	oursColor   = color.RGBA{R: 0x1b, G: 0x7f, B: 0x79, A: 0xff}
	theirsColor = color.RGBA{R: 0xb0, G: 0xb4, B: 0xba, A: 0xff}
)

// The font that measures texts, and the spaces added to a name in case it is shown in a wider font.
const (
	font  = "Liberation Serif"
	spare = 12
)

// Charts draws bars of one stage on a logarithmic scale: the median of each peer. A metric without
// measurements has no chart.
func Charts(run *result.Run) ([]Chart, error) {
	st := stage(run, medium)
	if st == nil { // a small run
		st = &run.Stages[len(run.Stages)-1]
	}
	var all []Chart
	for _, c := range []struct {
		name, scenario string
		metric         metric
		unit           string
		scale          float64
	}{
		{"first-read", driver.Restart0, readTime, "seconds", 1},
		{"caught-up", driver.Restart1, caughtUpTime, "seconds", 1},
		{"bytes", driver.Restart0, received, "KB", 1e3},
		{"peak-memory", driver.First, peakMemory, "MB", 1e6},
	} {
		chart, err := bars(st, c.scenario, c.metric, fmt.Sprintf("%s, %s: %s (%s)", st.Name, c.scenario, c.metric.name, c.unit), c.scale)
		if err != nil {
			return nil, fmt.Errorf("chart %s: %w", c.name, err)
		}
		if chart != nil {
			all = append(all, Chart{c.name + ".svg", chart})
		}
	}
	return all, nil
}

// bars draws a bar for each peer, or returns nil if none was measured.
func bars(st *result.Stage, scenario string, m metric, title string, scale float64) ([]byte, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	peers := unique(st.Turns, func(t result.Turn) string { return t.Peer })
	slices.Reverse(peers) // the first is on top
	var names []string
	low, high := math.Inf(1), math.Inf(-1)
	for _, peer := range peers {
		s := spread(st, scenario, peer, m)
		if s.Count == 0 || s.Median <= 0 {
			continue
		}
		low, high = min(low, s.Median/scale), max(high, s.Median/scale)
		names = append(names, fmt.Sprintf("%s  %s", peer, m.text(s.Median))+strings.Repeat(" ", spare))
	}
	if len(names) == 0 {
		return nil, nil
	}
	// A logarithmic scale has no zero: it begins a decade below.
	p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(low))-1), math.Pow(10, math.Ceil(math.Log10(high)))
	at := 0
	for _, peer := range peers {
		s := spread(st, scenario, peer, m)
		if s.Count == 0 || s.Median <= 0 {
			continue
		}
		y, end := float64(at), s.Median/scale
		box, err := plotter.NewPolygon(plotter.XYs{{X: p.X.Min, Y: y - 0.35}, {X: end, Y: y - 0.35}, {X: end, Y: y + 0.35}, {X: p.X.Min, Y: y + 0.35}})
		if err != nil {
			return nil, err
		}
		box.Color, box.LineStyle.Width = theirsColor, 0
		if peer == driver.Agent || peer == driver.LibraryBolt {
			box.Color = oursColor
		}
		p.Add(box)
		at++
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
	return svg(p, vg.Length(1+0.32*float64(len(names)))*vg.Inch)
}

// svg draws a picture of a height.
func svg(p *plot.Plot, height vg.Length) ([]byte, error) {
	canvas := vgsvg.New(8*vg.Inch, height)
	p.Draw(draw.Crop(draw.New(canvas), vg.Inch/2, -vg.Inch/4, 0, 0))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:"+font), []byte("font-family:"+font+",Times New Roman,Times,serif")), nil
}
