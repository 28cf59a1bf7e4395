package statuspage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/snapcache/snapcache/localapi"
)

// view is the input of the template, in words.
type view struct {
	Node        string
	Level       localapi.Level
	Freshness   string
	Summary     string
	Browse      string // link to the objects; empty for none
	Alarms      []localapi.Alarm
	Collections []card
	Facts       facts
}

type card struct {
	ID       string
	Name     []string // the ID in parts, between which a line may break
	Link     string   // to its objects; empty for none
	Level    localapi.Level
	State    string
	Progress string // of a running list
	Objects  string // empty without a complete list
	Facts    facts
	Chart    *chart // nil without counts
}

type fact struct {
	Name, Value string
	Time        string // the exact time of the value; empty for none
}

type facts []fact

// add adds a fact unless its value is empty.
func (f *facts) add(name, value string) {
	if value != "" {
		*f = append(*f, fact{Name: name, Value: value})
	}
}

// addAt adds a fact with its time, if there is one.
func (f *facts) addAt(name, value string, t time.Time) {
	x := fact{Name: name, Value: value}
	if !t.IsZero() {
		x.Time = t.UTC().Format(time.RFC3339)
	}
	*f = append(*f, x)
}

func newView(s *localapi.Status, node string, now time.Time) view {
	f := s.Freshness()
	v := view{Node: node, Level: f.Level, Freshness: f.Text, Summary: f.Content, Alarms: s.Alarms(), Facts: agentFacts(s, now)}
	var bytes int64
	for _, c := range s.Collections {
		v.Collections = append(v.Collections, newCard(c, now))
		if c.Synced {
			bytes += c.Bytes
		}
	}
	if bytes > 0 {
		v.Summary += ", " + localapi.Size(bytes)
	}
	for _, a := range v.Alarms {
		if v.Level == localapi.Good || a.Level == localapi.Bad {
			v.Level = a.Level
		}
	}
	return v
}

func newCard(c localapi.Collection, now time.Time) card {
	x := card{ID: c.ID, Name: strings.SplitAfter(c.ID, "."), Progress: c.Progress(), Chart: newChart(c.EventsByMinute)}
	x.Level, x.State = c.State()
	if c.Synced {
		x.Objects = humanize.Comma(c.Objects)
		x.Facts.add("Size", localapi.Size(c.Bytes))
		x.Facts.add("Age", c.Age())
	}
	x.Facts.add("Events", humanize.Comma(c.Events))
	x.Facts.add("Resumed", english.Plural(int(c.Resumes), "time", ""))
	x.Facts.add("Lists", lists(c))
	if !c.LastList.IsZero() {
		x.Facts.addAt("Last list", localapi.Ago(now, c.LastList)+", "+c.ListReason, c.LastList)
	}
	if v := c.Verification; v != nil {
		x.Facts.addAt("Compared", localapi.Ago(now, v.Time)+": "+v.Result(), v.Time)
	}
	x.Facts.add("Checkpoint", c.ResourceVersion)
	x.Facts.add("Selects", selection(c))
	return x
}

func lists(c localapi.Collection) string {
	if c.Lists == 0 {
		return "none since the start"
	}
	var parts []string
	for reason, n := range c.Relists {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func selection(c localapi.Collection) string {
	var parts []string
	if c.LabelSelector != "" {
		parts = append(parts, "labels "+c.LabelSelector)
	}
	if c.FieldSelector != "" {
		parts = append(parts, "fields "+c.FieldSelector)
	}
	return strings.Join(parts, "; ")
}

func agentFacts(s *localapi.Status, now time.Time) facts {
	var all facts
	if a := s.Agent; a != nil {
		all.add("Server", a.ServerText())
		all.add("Version", a.Version)
		all.addAt("Started", localapi.Ago(now, a.Started), a.Started)
	}
	file := ""
	if s.Store.FileBytes > 0 {
		file = localapi.Size(s.Store.FileBytes)
	}
	if s.Store.Path != "" {
		file += " at " + s.Store.Path
	}
	all.add("Database", strings.TrimSpace(file))
	all.add("At the start", s.Store.Verdict)
	all.add("Encryption", s.Store.Encryption())
	if x := s.Snapshots; x != nil {
		all.addAt("Snapshots", x.Summary(now), x.Newest)
		all.add("Snapshots in", x.Dir)
	}
	return all
}

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
