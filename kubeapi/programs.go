package kubeapi

import (
	"cmp"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// maxPrograms is how many client programs are told apart: each gives itself its name.
const maxPrograms = 40

// otherPrograms are the programs without a name, and all after maxPrograms.
const otherPrograms = "others"

// ProgramCounts are the requests of one client program. The server has seen those that were forwarded, and no other.
type ProgramCounts struct {
	Name      string // from its User-Agent, up to the version
	Requests  int64  // answered here, watches apart
	Watches   int64  // begun here
	Open      int64  // of these, now
	Forwarded int64
}

// programs counts the requests of each client program. It is a [prometheus.Collector].
type programs struct {
	answered, watches *prometheus.Desc

	mu     sync.Mutex
	counts map[string]*ProgramCounts
}

func newPrograms(prefix string) *programs {
	return &programs{
		answered: prometheus.NewDesc(prefix+"program_requests_total",
			"Requests of client programs, by the name that they give themselves and by who answered: cache, or server for those that were forwarded.",
			[]string{"program", "answered"}, nil),
		watches: prometheus.NewDesc(prefix+"program_watches",
			"Open watches of client programs that the cache answers.", []string{"program"}, nil),
		counts: map[string]*ProgramCounts{},
	}
}

var productName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ofLocked returns the counts of the program of a request.
func (p *programs) ofLocked(r *http.Request) *ProgramCounts {
	name, _, _ := strings.Cut(r.UserAgent(), "/")
	c := p.counts[name]
	if c == nil && (!productName.MatchString(name) || len(p.counts) >= maxPrograms) {
		name = otherPrograms
		c = p.counts[name]
	}
	if c == nil {
		c = &ProgramCounts{Name: name}
		p.counts[name] = c
	}
	return c
}

// begin counts a request that the cache answers. The returned function counts its end; it is not counted if it was
// forwarded instead.
func (p *programs) begin(r *request) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.ofLocked(r.Request)
	if r.verb == verbWatch {
		c.Watches++
		c.Open++
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case r.verb == verbWatch:
			c.Open--
		case !r.forwarded:
			c.Requests++
		}
	}
}

// forwarded counts a request that is forwarded.
func (p *programs) forwarded(r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.forwarded = true
	p.ofLocked(r.Request).Forwarded++
}

// all returns the counts of all programs, those with the most requests first.
func (p *programs) all() []ProgramCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []ProgramCounts
	for c := range maps.Values(p.counts) {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b ProgramCounts) int {
		return cmp.Or(cmp.Compare(b.answered(), a.answered()), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (c ProgramCounts) answered() int64 { return c.Requests + c.Watches }

// Describe implements [prometheus.Collector].
func (p *programs) Describe(to chan<- *prometheus.Desc) {
	to <- p.answered
	to <- p.watches
}

// Collect implements [prometheus.Collector].
func (p *programs) Collect(to chan<- prometheus.Metric) {
	for _, c := range p.all() {
		to <- prometheus.MustNewConstMetric(p.answered, prometheus.CounterValue, float64(c.answered()), c.Name, "cache")
		to <- prometheus.MustNewConstMetric(p.answered, prometheus.CounterValue, float64(c.Forwarded), c.Name, "server")
		to <- prometheus.MustNewConstMetric(p.watches, prometheus.GaugeValue, float64(c.Open), c.Name)
	}
}
