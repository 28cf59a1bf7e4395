package status

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// metric is one family: its name, help and labels.
func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("snapcache_"+name, help, labels, nil)
}

var (
	descBuild = metric("build_info", "1, with the version as a label.", "version")

	descReloaded   = metric("config_last_reload_successful", "1 where the newest configuration that was read is the one in force.")
	descReloadedAt = metric("config_last_reload_success_timestamp_seconds", "When the configuration in force was read, seconds since 1970.")

	descObjects    = metric("collection_objects", "Objects stored.", "collection")
	descBytes      = metric("collection_bytes", "Length of the stored objects' JSON.", "collection")
	descSynced     = metric("collection_synced", "1 once a complete list is stored; until then the collection can't be read.", "collection")
	descInStep     = metric("collection_in_step", "1 while the watch is up.", "collection")
	descUntrusted  = metric("collection_untrusted", "1 while what is stored is known not to be the server's any more and a list has not replaced it yet.", "collection")
	descAge        = metric("collection_checkpoint_age_seconds", "How long ago the collection was last known to be complete, 0 while in step.", "collection")
	descEvents     = metric("events_total", "Watch events received.", "collection", "type")
	descRelists    = metric("relists_total", "Complete lists, by reason.", "collection", "reason")
	descHeldBack   = metric("deletions_held_back_total", "Deletions that a list asked for and that had to be confirmed by a second one.", "collection")
	descResumes    = metric("resumes_total", "Watches resumed from a checkpoint without a list.", "collection")
	descReceived   = metric("received_bytes_total", "Bytes of answers received from the server, as they came over the network.", "collection")
	descQueueLen   = metric("queue_length", "Keys that wait to be stored.", "collection")
	descQueueBytes = metric("queue_bytes", "Bytes that wait to be stored.", "collection")
	descChanges    = metric("store_changes_total", "Objects written to the store, by what happened to them.", "collection", "op")
	descStale      = metric("stale_events_total", "Events older than what is stored, as a resumed watch replays them.", "collection")
	descFailures   = metric("upstream_errors_total", "Times that the server could not be asked or did not give what was asked for, by kind; the collection waits and tries again.", "collection", "kind")
	descSkipped    = metric("skipped_total", "Things the server sent that could not be used.", "collection")
	descDamaged    = metric("damaged_records_total", "Stored records that failed their check when they were read.", "collection")
	descUnreadable = metric("collection_damaged_records", "Those of them that were not fetched again yet.", "collection")

	descDrift    = metric("verify_drift_total", "Differences that comparisons with the server found, by kind.", "collection", "kind")
	descVerified = metric("verify_last_success_timestamp_seconds", "When the collection was last compared with the server completely, seconds since 1970.", "collection")

	descPurges = metric("purges_total", "Times that all of a collection was deleted because the server forbids it.", "collection")

	descSnapshots     = metric("snapshots_total", "Snapshots that this process made, or failed to make.", "result")
	descSnapshotTime  = metric("snapshot_last_success_timestamp_seconds", "When the newest snapshot was made, seconds since 1970.")
	descSnapshotBytes = metric("snapshot_bytes", "Size of the newest snapshot's file.")

	descCommits    = metric("store_commits_total", "Transactions committed.")
	descCommitTime = metric("store_commit_seconds_total", "Time spent in transactions.")
	descSyncTime   = metric("store_sync_seconds_total", "Part of that spent on writing and syncing the file.")
	descPages      = metric("store_pages_written_total", "Pages written to the file.")
	descFile       = metric("store_file_bytes", "Size of the database file.")
	descQuota      = metric("store_quota_bytes", "The most that the database file may have (store.maxSize).")
	descCompact    = metric("store_compactions_total", "Times that the file was rewritten without the space that was free in it.")
	descCompactFor = metric("store_compaction_seconds_total", "Time that took.")
	descReclaimed  = metric("store_reclaimed_bytes_total", "By how much it made the file smaller.")
	descKey        = metric("store_encrypted", "1 where the file is encrypted, with the id of the key as a label.", "key")
	descRekey      = metric("store_rewrite_pending", "1 while the file waits to be rewritten under the key of the configuration, or in clear.")
	descFailing    = metric("store_failing", "1 while the store refuses changes; they are kept and tried again.")
	descReadFaults = metric("store_read_errors_total", "Times that a page of the database file could not be read.")
	descOpened     = metric("store_opened", "1, with what became of the file when this process opened it: opened, created or quarantined.", "outcome", "reason")
	descQuarantine = metric("store_quarantined", "1 if the file was set aside when this process opened it, by reason.", "reason")
)

// Metrics serves the metrics.
func (r *Reporter) Metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metricsCollector{r}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// metricsCollector reads the state at each scrape.
type metricsCollector struct{ *Reporter }

// Describe sends nothing: the collections are known only at the scrape.
func (metricsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics.
func (m metricsCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(descBuild, 1, m.Version)
	gauge(descOpened, 1, string(m.Verdict.Outcome), m.Verdict.Reason)
	if m.Verdict.Outcome == restore.Quarantined {
		gauge(descQuarantine, 1, m.Verdict.Reason)
	}
	loaded, refusal := m.Loaded()
	gauge(descReloaded, number(refusal == ""))
	gauge(descReloadedAt, float64(loaded.UnixMilli())/1000)
	m.sendSnapshots(gauge, counter)
	stats := m.DB.Stats()
	failing := stats.FlushError != nil
	for _, c := range m.All() {
		stats := c.Tracker.Stats()
		failing = failing || stats.Store != nil
		m.collection(c, stats, gauge, counter)
	}
	counter(descCommits, float64(stats.Commits))
	counter(descCommitTime, stats.CommitTime.Seconds())
	counter(descSyncTime, stats.SyncTime.Seconds())
	counter(descPages, float64(stats.PagesWritten))
	gauge(descFile, float64(stats.FileBytes))
	if m.Config().Store.Type == config.StoreBolt {
		gauge(descQuota, float64(m.Config().Store.MaxSize.Value()))
	}
	counter(descCompact, float64(stats.Compactions))
	counter(descCompactFor, stats.CompactTime.Seconds())
	counter(descReclaimed, float64(stats.CompactedBytes))
	if stats.EncryptionKey != "" {
		gauge(descKey, 1, stats.EncryptionKey)
	}
	gauge(descRekey, number(stats.EncryptionDue))
	gauge(descFailing, number(failing))
	counter(descReadFaults, float64(stats.ReadFaults))
}

// sendSnapshots sends nothing if the store has none.
func (m metricsCollector) sendSnapshots(gauge, counter send) {
	s := m.Snapshots()
	if s == nil {
		return
	}
	counter(descSnapshots, float64(s.Made), "success")
	counter(descSnapshots, float64(s.Failed), "failure")
	if !s.Newest.IsZero() {
		gauge(descSnapshotTime, float64(s.Newest.UnixMilli())/1000)
		gauge(descSnapshotBytes, float64(s.Bytes))
	}
}

type send func(d *prometheus.Desc, v float64, labels ...string)

func (m metricsCollector) collection(c *collection.Collection, stats collection.Stats, gauge, counter send) {
	stored, source, queue, ok := c.Live()
	s := m.Reporter.Describe(c, stats)
	gauge(descSynced, number(s.Synced), c.ID)
	gauge(descInStep, number(s.InStep), c.ID)
	gauge(descUntrusted, number(s.Untrusted != ""), c.ID)
	if s.Synced {
		// An age of a collection without data would look fresh.
		gauge(descAge, s.AgeSeconds, c.ID)
	}
	if stored != nil {
		gauge(descObjects, float64(s.Objects), c.ID)
		gauge(descBytes, float64(s.Bytes), c.ID)
	}
	for _, t := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
		counter(descEvents, float64(stats.Events[t]), c.ID, string(t))
	}
	for _, reason := range store.Reasons() {
		counter(descRelists, float64(stats.Lists[reason]), c.ID, string(reason))
	}
	counter(descHeldBack, float64(stats.HeldBack), c.ID)
	counter(descResumes, float64(stats.Resumes), c.ID)
	counter(descChanges, float64(stats.Counts.Added), c.ID, "added")
	counter(descChanges, float64(stats.Counts.Updated), c.ID, "updated")
	counter(descChanges, float64(stats.Counts.Deleted), c.ID, "deleted")
	counter(descStale, float64(stats.Counts.Stale), c.ID)
	for _, kind := range upstream.ErrorKinds() {
		counter(descFailures, float64(stats.Failures[kind]), c.ID, string(kind))
	}
	counter(descSkipped, float64(stats.Skipped), c.ID)
	_, found := m.Damaged(c.ID)
	counter(descDamaged, float64(found), c.ID)
	gauge(descUnreadable, float64(s.DamagedRecords), c.ID)
	if c.Configured().Resource.IsSecrets() {
		counter(descPurges, float64(stats.Purges), c.ID)
	}
	for _, kind := range collection.DriftKinds() {
		counter(descDrift, float64(stats.Drifts[kind]), c.ID, string(kind))
	}
	if !stats.VerifiedAt.IsZero() {
		gauge(descVerified, float64(stats.VerifiedAt.UnixMilli())/1000, c.ID)
	}
	if ok {
		counter(descReceived, float64(source.BytesReceived()), c.ID)
		gauge(descQueueLen, float64(queue.Len()), c.ID)
		gauge(descQueueBytes, float64(queue.Bytes()), c.ID)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
