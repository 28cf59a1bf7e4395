package status

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
)

// The agent's own metrics. pipeline has the metrics of collections and of the store.
var (
	descBuild = pipeline.Metric("build_info", "1, with the version as a label.", "version")

	descFallback = pipeline.Metric("fallback", "1 while the server of fallbackContext is used. Absent without one.")

	descCertFrom = pipeline.Metric("kubernetes_api_certificate_not_before_timestamp_seconds",
		"From when on the certificate that the Kubernetes API serves is valid, seconds since 1970.")
	descCertTo = pipeline.Metric("kubernetes_api_certificate_not_after_timestamp_seconds",
		"When that certificate ends, seconds since 1970.")

	descReloaded   = pipeline.Metric("config_last_reload_successful", "1 if the newest configuration that was read is the one in force.")
	descReloadedAt = pipeline.Metric("config_last_reload_success_timestamp_seconds", "When the configuration in force was read, seconds since 1970.")

	descReceived   = pipeline.Metric("received_bytes_total", "Bytes of answers received from the server, as they came over the network.", "collection")
	descCorrupt    = pipeline.Metric("corrupt_records_total", "Stored records that failed their check when they were read.", "collection")
	descUnreadable = pipeline.Metric("collection_corrupt_records", "Those of them that were not fetched again yet.", "collection")

	descDrift    = pipeline.Metric("verify_drift_total", "Differences that comparisons with the server found, by kind.", "collection", "kind")
	descVerified = pipeline.Metric("verify_last_success_timestamp_seconds", "When the collection was last compared with the server completely, seconds since 1970.", "collection")

	descPurges = pipeline.Metric("purges_total", "Times that all of a collection was deleted because the server forbids it.", "collection")

	descSnapshots     = pipeline.Metric("snapshots_total", "Snapshots that this process made, or failed to make.", "result")
	descSnapshotTime  = pipeline.Metric("snapshot_last_success_timestamp_seconds", "When the newest snapshot was made, seconds since 1970.")
	descSnapshotBytes = pipeline.Metric("snapshot_bytes", "Size of the newest snapshot's file.")

	descQuota      = pipeline.Metric("store_quota_bytes", "The most that the database file may have (store.maxSize).")
	descOpened     = pipeline.Metric("store_opened", "1, with what became of the file when this process opened it: opened, created or quarantined.", "outcome", "reason")
	descQuarantine = pipeline.Metric("store_quarantined", "1 if the file was set aside when this process opened it, by reason.", "reason")
)

// Metrics serves the metrics.
func (r *Reporter) Metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metricsCollector{r}, r.opts.API, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &scrapes{next: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
}

// metricsCollector reads the state at each scrape.
type metricsCollector struct{ *Reporter }

// Describe sends nothing: the collections are known only at the scrape.
func (metricsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics.
func (m metricsCollector) Collect(ch chan<- prometheus.Metric) {
	send := pipeline.Sender(ch)
	send.Gauge(descBuild, 1, m.opts.Version)
	send.Gauge(descOpened, 1, string(m.opts.Verdict.Outcome), m.opts.Verdict.Reason)
	if m.opts.Verdict.Outcome == restore.Quarantined {
		send.Gauge(descQuarantine, 1, m.opts.Verdict.Reason)
	}
	if m.opts.Config().FallbackContext != "" {
		send.Flag(descFallback, m.opts.Cluster.FellBack())
	}
	if served := m.opts.Certificate(); served != nil {
		send.Gauge(descCertFrom, seconds(served.NotBefore))
		send.Gauge(descCertTo, seconds(served.NotAfter))
	}
	loaded, refusal := m.opts.Loaded()
	send.Flag(descReloaded, refusal == "")
	send.Gauge(descReloadedAt, seconds(loaded))
	m.sendSnapshots(send)
	refusing := m.opts.Refused != nil
	for _, c := range m.opts.All() {
		stats := c.Tracker.Stats()
		refusing = refusing || stats.Store != nil
		m.collection(send, c, stats)
	}
	send.Store(m.opts.DB.Stats(), refusing)
	if m.opts.Config().Store.Type == config.StoreBolt {
		send.Gauge(descQuota, float64(m.opts.Config().Store.MaxSize.Value()))
	}
}

// sendSnapshots sends the metrics of the snapshots, if the store can have any.
func (m metricsCollector) sendSnapshots(send pipeline.Sender) {
	s := m.opts.Snapshots()
	if s == nil {
		return
	}
	send.Counter(descSnapshots, float64(s.Made), "success")
	send.Counter(descSnapshots, float64(s.Failed), "failure")
	if !s.Newest.IsZero() {
		send.Gauge(descSnapshotTime, seconds(s.Newest))
		send.Gauge(descSnapshotBytes, float64(s.Bytes))
	}
}

func (m metricsCollector) collection(send pipeline.Sender, c *collection.Collection, stats collection.Stats) {
	live := c.Live()
	var state *store.State
	if live.Stored != nil {
		s := live.Stored.State()
		state = &s
	}
	send.Collection(c.ID, m.opts.Clock.Now(), stats.Counters, state, live.Queue)
	corrupt, found := m.opts.Corrupt(c.ID)
	send.Counter(descCorrupt, float64(found), c.ID)
	send.Gauge(descUnreadable, float64(corrupt), c.ID)
	if c.Configured().Resource.IsSecrets() {
		send.Counter(descPurges, float64(stats.Purges), c.ID)
	}
	for _, kind := range collection.DriftKinds() {
		send.Counter(descDrift, float64(stats.Drifts[kind]), c.ID, string(kind))
	}
	if !stats.VerifiedAt.IsZero() {
		send.Gauge(descVerified, seconds(stats.VerifiedAt), c.ID)
	}
	if live.Source != nil {
		send.Counter(descReceived, float64(live.Source.BytesReceived()), c.ID)
	}
}

// seconds returns a time in seconds since 1970, as metrics have it.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
