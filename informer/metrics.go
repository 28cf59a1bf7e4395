package informer

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// metric returns the description of one family. A metric with the meaning of one of the agent's has
// its name.
func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("snapcache_"+name, help, labels, nil)
}

var (
	descObjects    = metric("collection_objects", "Objects stored.", "collection")
	descBytes      = metric("collection_bytes", "Length of the stored objects.", "collection")
	descSynced     = metric("collection_synced", "1 once a complete list is stored.", "collection")
	descInStep     = metric("collection_in_step", "1 while the watch is up.", "collection")
	descAge        = metric("collection_checkpoint_age_seconds", "How long ago the collection was last known to be complete, 0 while in step.", "collection")
	descEvents     = metric("events_total", "Watch events received.", "collection", "type")
	descRelists    = metric("relists_total", "Complete lists, by reason.", "collection", "reason")
	descResumes    = metric("resumes_total", "Watches resumed from a checkpoint without a list.", "collection")
	descQueueLen   = metric("queue_length", "Keys that wait to be stored.", "collection")
	descQueueBytes = metric("queue_bytes", "Bytes that wait to be stored.", "collection")
	descChanges    = metric("store_changes_total", "Objects written to the store, by what happened to them.", "collection", "op")
	descStale      = metric("stale_events_total", "Events older than what is stored, as a resumed watch replays them.", "collection")
	descSkipped    = metric("skipped_total", "Objects that could not be used: not encoded, not stored, refused by the transform or of another type.", "collection")
	descReadErrors = metric("read_errors_total", "Errors in reading, decoding or indexing what is stored.", "collection")
	descRefusing   = metric("store_refusing", "1 while the store refuses this collection's changes; they are kept and retried.", "collection")

	descCommits  = metric("store_commits_total", "Transactions committed.", "path")
	descSyncTime = metric("store_sync_seconds_total", "Time spent on writing and syncing the file.", "path")
	descPages    = metric("store_pages_written_total", "Pages written to the file.", "path")
	descFile     = metric("store_file_bytes", "Size of the database file.", "path")
	descFailing  = metric("store_failing", "1 if the newest flush of the store failed; it is retried.", "path")
)

// Metrics are the metrics of the informers made with [WithMetrics], and of their durable stores. It
// is a [prometheus.Collector]; it has an informer while the informer runs, under the id of its
// collection.
type Metrics struct {
	mu    sync.Mutex
	meter map[string]*meter
}

var _ prometheus.Collector = (*Metrics)(nil)

// NewMetrics returns metrics of no informers.
func NewMetrics() *Metrics { return &Metrics{meter: map[string]*meter{}} }

// add adds an informer that runs.

func (m *Metrics) add(x *meter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.meter[x.id] = x
}

func (m *Metrics) remove(x *meter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meter[x.id] == x {
		delete(m.meter, x.id)
	}
}

// Describe sends nothing: the collections are known only at the scrape.
func (*Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	meters := slices.Collect(maps.Values(m.meter))
	m.mu.Unlock()
	send := func(t prometheus.ValueType) send {
		return func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
		}
	}
	gauge, counter := send(prometheus.GaugeValue), send(prometheus.CounterValue)
	files := map[string]store.Stats{}
	for _, x := range meters {
		x.collect(gauge, counter)
		if s := x.db.Stats(); s.Path != "" {
			files[s.Path] = s
		}
	}
	for path, s := range files {
		counter(descCommits, float64(s.Commits), path)
		counter(descSyncTime, s.SyncTime.Seconds(), path)
		counter(descPages, float64(s.PagesWritten), path)
		gauge(descFile, float64(s.FileBytes), path)
		gauge(descFailing, number(s.FlushError != nil), path)
	}
}

type send func(d *prometheus.Desc, v float64, labels ...string)

// meter counts the operations of one informer.
type meter struct {
	reflector.Silent
	id         string
	db         store.DB
	collection store.Collection
	queue      *deltafifo.Queue
	readErrors func() uint64

	mu       sync.Mutex // guards the fields below
	phase    reflector.Phase
	events   map[watch.EventType]uint64
	lists    map[store.Reason]uint64
	resumes  uint64
	skipped  uint64
	counts   Counts
	refusing bool
}

var (
	_ reflector.Observer = (*meter)(nil)
	_ Observer           = (*meter)(nil)
)

func (m *meter) note(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *meter) Phase(p reflector.Phase, _ error) { m.note(func() { m.phase = p }) }

func (m *meter) Event(t watch.EventType, _ string) { m.note(func() { m.events[t]++ }) }

func (m *meter) Listed(r store.Reason, _ string, _ int64, _ time.Duration) {
	m.note(func() { m.lists[r]++ })
}

func (m *meter) Resumed(string) { m.note(func() { m.resumes++ }) }
func (m *meter) Skipped(error)  { m.note(func() { m.skipped++ }) }

func (m *meter) Applied(c Counts, _ time.Duration) { m.note(func() { m.counts.add(c) }) }

func (m *meter) StoreFailed(err error) { m.note(func() { m.refusing = err != nil }) }

func (m *meter) collect(gauge, counter send) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.collection.State()
	gauge(descObjects, float64(state.Count), m.id)
	gauge(descBytes, float64(state.Bytes), m.id)
	gauge(descSynced, number(state.Synced), m.id)
	inStep := m.phase == reflector.PhaseWatching
	gauge(descInStep, number(inStep), m.id)
	switch {
	case !state.Synced: // an age of a collection without data would look fresh
	case inStep:
		gauge(descAge, 0, m.id)
	default:
		gauge(descAge, time.Since(state.Proven()).Seconds(), m.id)
	}
	for _, t := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
		counter(descEvents, float64(m.events[t]), m.id, string(t))
	}
	for _, r := range store.Reasons() {
		counter(descRelists, float64(m.lists[r]), m.id, string(r))
	}
	counter(descResumes, float64(m.resumes), m.id)
	gauge(descQueueLen, float64(m.queue.Len()), m.id)
	gauge(descQueueBytes, float64(m.queue.Bytes()), m.id)
	counter(descChanges, float64(m.counts.Added), m.id, "added")
	counter(descChanges, float64(m.counts.Updated), m.id, "updated")
	counter(descChanges, float64(m.counts.Deleted), m.id, "deleted")
	counter(descStale, float64(m.counts.Stale), m.id)
	counter(descSkipped, float64(m.skipped), m.id)
	counter(descReadErrors, float64(m.readErrors()), m.id)
	gauge(descRefusing, number(m.refusing), m.id)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
