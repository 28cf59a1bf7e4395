package informer

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
)

// The metrics of an informer.
var (
	descReadErrors = pipeline.Metric("read_errors_total", "Errors in reading, decoding or indexing stored objects.", "collection")
	descRefusing   = pipeline.Metric("store_refusing", "1 while the store refuses this collection's changes; they are kept and retried.", "collection")
)

// Metrics are the metrics of the informers made with [WithMetrics] while they run, and of their durable
// stores. It is a [prometheus.Collector].
type Metrics struct {
	mu      sync.Mutex
	running map[string]*metered
}

// metered is an informer that runs.
type metered struct {
	indexer *Indexer
	stats   *pipeline.Stats
	queue   *deltafifo.Queue
}

var _ prometheus.Collector = (*Metrics)(nil)

// NewMetrics returns metrics without informers.
func NewMetrics() *Metrics { return &Metrics{running: map[string]*metered{}} }

// add adds an informer, and returns the function that removes it.
func (m *Metrics) add(x *metered) (remove func()) {
	id := x.indexer.opts.id
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[id] = x
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.running[id] == x {
			delete(m.running, id)
		}
	}
}

// Describe sends nothing: the collections are known only at the scrape.
func (*Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	running := maps.Clone(m.running)
	m.mu.Unlock()
	files := map[string]storeMetrics{}
	for id, x := range running {
		c, state := x.stats.Counters(), x.indexer.coll.State()
		pipeline.Sender(ch).Collection(id, time.Now(), c, &state, x.queue)
		pipeline.Sender(ch).Counter(descReadErrors, float64(x.indexer.ReadErrors()), id)
		pipeline.Sender(ch).Flag(descRefusing, c.Store != nil, id)
		if s := x.indexer.opts.db.Stats(); s.Path != "" {
			files[s.Path] = storeMetrics{s}
		}
	}
	for path, f := range files {
		prometheus.WrapCollectorWith(prometheus.Labels{"path": path}, f).Collect(ch)
	}
}

// storeMetrics sends the metrics of a store, to be wrapped with its path.
type storeMetrics struct{ store.Stats }

func (storeMetrics) Describe(chan<- *prometheus.Desc) {}

func (m storeMetrics) Collect(ch chan<- prometheus.Metric) { pipeline.Sender(ch).Store(m.Stats, false) }
