package report

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

const memoryChart = "library-memory.svg"

// libraryExplained describes the peers of library.md.
const libraryExplained = alike + `
| peer | its cache |
|---|---|
| library-bolt | snapcache's factory of informers with the Go type, on the durable store. managedFields are kept |
| library-bolt-64MiB | the same under ` + "`GOMEMLIMIT=64MiB`" + `; with a handler, it also lists the pods of a namespace each second |
| typed | client-go's factory of informers as it is: protobuf, and lists by watch |
| typed-trimmed | the same with a transform that drops managedFields |
| metadata | client-go's factory of metadata informers: objects without spec and status |
| controller-runtime | its cache with its defaults |

` + scenarios + `- **first-handler**: no stored data, and such a handler. **all handled**: from the start of the process until the
  handler has received every object. A measurement ends three seconds after that, or without a handler after caught up.
- **Go's garbage collector**: its part of the CPU time that the process had (runtime/metrics).
- **generated**: the pods are made when they are listed, by a server with TLS, HTTP/2, protobuf and gzip, and there is no
  control plane. They are the same pods as the control plane's, 500 in each namespace.
`

// writeLibrary writes library.md, its chart and its figures.
func writeLibrary(run *result.Run, dir string) error {
	slices.SortStableFunc(run.Stages, func(x, y result.Stage) int { return cmp.Compare(x.Objects, y.Objects) })
	chart, err := memoryBySize(run)
	if err != nil {
		return fmt.Errorf("chart of memory: %w", err)
	}
	if err := writePage(run, dir, "library", library(run)); err != nil {
		return err
	}
	return result.WriteFile(filepath.Join(dir, memoryChart), chart)
}

// library returns library.md: the durable library beside informers that hold all objects.
func library(run *result.Run) string {
	var b strings.Builder
	st := &run.Stages[slices.IndexFunc(run.Stages, func(st result.Stage) bool { return len(st.Live) > 0 })]
	fmt.Fprintf(&b, "# The library at 100,000 objects\n\nThis page is written by `%s`. Don't edit it. "+
		"All figures are of one run:\n[the raw ones](library.json) are beside it.\n\n", run.Command)
	versions(&b, run)
	fmt.Fprintf(&b, "\n## Targets\n\nAt %s pods, beside client-go's typed informer. Medians.\n\n"+
		"| | library-bolt | typed | wanted | measured | result |\n|---|---|---|---|---|---|\n", humanize.Comma(int64(st.Objects)))
	for _, t := range largeTargets(st) {
		v := judge(t)
		fmt.Fprintf(&b, "| %s | %s | %s | at most %s | %s | %s |\n", t.what,
			withSpread(t.ours.at, t.ours.text), withSpread(t.theirs.at, t.theirs.text), ratio(t.ratio), ratio(v.got), v.text)
	}
	b.WriteString("\n## The measurement\n\n" + libraryExplained)
	b.WriteString("\n## As the number of objects grows\n\nThe first sync with a handler. " +
		"typed is measured on the control plane, library-bolt on it and with generated pods.\n\n" +
		"| | | peak, own | settled, own | settled, of files | on disk | caught up | all handled | CPU for an object |\n" +
		strings.Repeat("|---", 9) + "|\n")
	for _, st := range run.Stages {
		for _, peer := range []string{driver.LibraryBolt, driver.Typed} {
			at := func(m metric) string { return withSpread(spread(&st, driver.FirstHandled, peer, m), m.text) }
			cpu := spread(&st, driver.FirstHandled, peer, clientCPU)
			if cpu.Count == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %.0f µs |\n", st.Name, peer, at(peakOwn), at(settledAnon), at(settledFile),
				at(onDisk), at(caughtUpTime), at(handledTime), 1e6*cpu.Median/float64(st.Objects))
		}
	}
	fmt.Fprintf(&b, "\n![memory of its own as the number of objects grows](%s)\n\n", memoryChart)
	b.WriteString("## Reads without a cache\n\n" + driver.NoCache +
		", as it reads objects in `CacheOptions.DisableFor`: single pods, and the pods of a\n" +
		"namespace. It keeps nothing, and each read is a request.\n\n| | measured |\n|---|---|\n")
	for _, f := range st.Live {
		fmt.Fprintf(&b, "| %s | %s |\n", f.What, withSpread(measure.SpreadOf(f.Values), textOf(f.Unit)))
	}
	for i := range run.Stages {
		if len(run.Stages[i].Turns) > 1 {
			stageSection(&b, &run.Stages[i])
		}
	}
	return b.String()
}

// ratio formats a small ratio with enough digits to compare it.
func ratio(r float64) string { return fmt.Sprintf("%.3gx", r) }

// largeTargets returns the targets of the durable library at many objects, beside client-go's typed informer.
func largeTargets(st *result.Stage) []target {
	versus := func(what, scenario string, m metric, ratio float64) target {
		of := func(peer string) figure { return figure{peer, spread(st, scenario, peer, m), m.text} }
		return target{what: what, ours: of(driver.LibraryBolt), theirs: of(driver.Typed), ratio: ratio, atMost: true}
	}
	stream := func(what string, busy bool, of func(result.Stream) float64, ratio float64) target {
		side := func(peer string) figure { return figure{peer, delaysBeside(st, 100, peer, busy, of), seconds} }
		return target{what: what, ours: side(driver.LibraryBolt), theirs: side(driver.Typed), ratio: ratio, atMost: true}
	}
	limit := func(what string, own measure.Spread) target {
		return target{
			what: what, ours: figure{driver.LibraryLimited, own, size}, ratio: 1, atMost: true,
			theirs: figure{"limit", measure.SpreadOf([]float64{64 << 20}), size},
		}
	}
	within := func(scenario string) measure.Spread { return spread(st, scenario, driver.LibraryLimited, peakOwn) }
	limited := delays(st, 100, driver.LibraryLimited, func(s result.Stream) float64 { return s.Collector })
	return []target{
		versus("peak of its own memory on the first sync", driver.First, peakOwn, 0.05),
		versus("the same with a handler", driver.FirstHandled, peakOwn, 0.05),
		versus("peak of its own memory on the list after a 410", driver.Expired, peakOwn, 0.05),
		versus("its own memory, settled after a first sync with a handler", driver.FirstHandled, settledAnon, 0.05),
		versus("the same after a restart", driver.Handled, settledAnon, 0.05),
		stream("CPU for a change at 100 changes a second", false, changeCPU, 1.3),
		stream("from a change to a handler, p99, at 100 changes a second", false, changeP99, 1),
		stream("the same beside a busy loop for each CPU", true, changeP99, 1),
		versus("CPU on a restart with 1 % changed and a handler", driver.Handled, clientCPU, 0.5),
		{
			what: "Go's garbage collector in 64 MiB, of the CPU (beside: of the whole)", ours: figure{driver.LibraryLimited, limited, percent},
			theirs: figure{"limit", measure.SpreadOf([]float64{1}), percent}, ratio: 0.25, atMost: true,
		},
		limit("peak of its own memory in 64 MiB (beside: 64 MiB): a first sync with a handler", within(driver.FirstHandled)),
		limit("a restart with 1 % changed and a handler", within(driver.Handled)),
		limit("a list after a 410", within(driver.Expired)),
		limit("100 changes a second, and each second a namespace's list",
			delays(st, 100, driver.LibraryLimited, func(s result.Stream) float64 { return float64(s.PeakOwn) })),
	}
}

// memoryBySize draws the memory of a first sync with a handler by the number of objects, both on logarithmic scales.
func memoryBySize(run *result.Run) ([]byte, error) {
	p := plot.New()
	p.Title.Text = "first sync with a handler: memory of its own (MB) by the number of pods"
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	p.Legend.Top, p.Legend.Left = true, true
	for _, line := range []struct {
		name, peer string
		metric     metric
		color      color.Color
		dashes     []vg.Length
	}{
		{"typed, settled", driver.Typed, settledAnon, theirsColor, nil},
		{"library-bolt, peak", driver.LibraryBolt, peakOwn, oursColor, []vg.Length{vg.Points(4), vg.Points(3)}},
		{"library-bolt, settled", driver.LibraryBolt, settledAnon, oursColor, nil},
	} {
		bySize := map[int]float64{} // of stages of one size the last
		for i := range run.Stages {
			st := &run.Stages[i]
			if s := spread(st, driver.FirstHandled, line.peer, line.metric); s.Count > 0 {
				bySize[st.Objects] = s.Median / 1e6
			}
		}
		var points plotter.XYs
		for _, n := range slices.Sorted(maps.Keys(bySize)) {
			points = append(points, plotter.XY{X: float64(n), Y: bySize[n]})
		}
		l, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		l.Color, l.Width, l.Dashes, dots.Color = line.color, vg.Points(2), line.dashes, line.color
		p.Add(l, dots)
		p.Legend.Add(line.name, l, dots)
	}
	p.Y.Min, p.Y.Max = 10, 10_000
	p.X.Min, p.X.Max = min(10_000, p.X.Min), max(1_000_000, p.X.Max)
	return svg(p, 4*vg.Inch)
}
