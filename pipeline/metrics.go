package pipeline

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// Metric returns the description of a metric of snapcache, in an agent or in a program.
func Metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("snapcache_"+name, help, labels, nil)
}

// The metrics of a collection, in an agent and in a program.
var (
	descObjects    = Metric("collection_objects", "Objects stored.", "collection")
	descBytes      = Metric("collection_bytes", "Length of the stored objects.", "collection")
	descSynced     = Metric("collection_synced", "1 once a complete list is stored; until then the collection can't be read.", "collection")
	descCaughtUp   = Metric("collection_caught_up", "1 while the watch is up and known to deliver.", "collection")
	descUntrusted  = Metric("collection_untrusted", "1 while the stored objects are known not to be the server's and no list has replaced them.", "collection")
	descAge        = Metric("collection_checkpoint_age_seconds", "How long ago the collection was last known to be complete, 0 while the watch is up, +Inf if a wrong clock hides it.", "collection")
	descEvents     = Metric("events_total", "Watch events received.", "collection", "type")
	descRelists    = Metric("relists_total", "Complete lists, by reason.", "collection", "reason")
	descHeldBack   = Metric("deletions_held_back_total", "Deletions of a list that a second one had to confirm.", "collection")
	descResumes    = Metric("resumes_total", "Watches resumed from a checkpoint without a list.", "collection")
	descQueueLen   = Metric("queue_length", "Keys that wait to be stored.", "collection")
	descQueueBytes = Metric("queue_bytes", "Bytes that wait to be stored.", "collection")
	descChanges    = Metric("store_changes_total", "Objects written to the store, by what happened to them.", "collection", "op")
	descStale      = Metric("stale_events_total", "Events older than the stored object, as a resumed watch replays them.", "collection")
	descFailures   = Metric("upstream_errors_total", "Failed requests to the server, by kind; after each the collection waits and retries.", "collection", "kind")
	descSkipped    = Metric("skipped_total", "Objects and events of the server that could not be used.", "collection")
)

// The metrics of a store.
var (
	descCommits    = Metric("store_commits_total", "Transactions committed.")
	descCommitTime = Metric("store_commit_seconds_total", "Time spent in transactions.")
	descSyncTime   = Metric("store_sync_seconds_total", "Part of that spent on writing and syncing the file.")
	descPages      = Metric("store_pages_written_total", "Pages written to the file.")
	descFile       = Metric("store_file_bytes", "Size of the database file.")
	descCompact    = Metric("store_compactions_total", "Rewrites of the file without its free space.")
	descCompactFor = Metric("store_compaction_seconds_total", "Time spent on them.")
	descReclaimed  = Metric("store_reclaimed_bytes_total", "Bytes by which they made the file smaller.")
	descKey        = Metric("store_encrypted", "1 if the file is encrypted, with the id of the key as a label.", "key")
	descRekey      = Metric("store_rewrite_pending", "1 while the file waits to be rewritten under the key of the configuration, or in clear.")
	descFailing    = Metric("store_failing", "1 while the store refuses changes; they are kept and retried.")
	descReadFaults = Metric("store_read_errors_total", "Pages of the database file that could not be read.")
)

// Sender sends metrics of one scrape.
type Sender chan<- prometheus.Metric

// Gauge sends a gauge.
func (s Sender) Gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// Flag sends a gauge that is 1 or 0.
func (s Sender) Flag(d *prometheus.Desc, on bool, labels ...string) {
	v := 0.0
	if on {
		v = 1
	}
	s.Gauge(d, v, labels...)
}

// Counter sends a counter.
func (s Sender) Counter(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// Collection sends the metrics of a collection. state is nil before it is opened, queue before it runs.
func (s Sender) Collection(id string, now time.Time, c Counters, state *store.State, queue *deltafifo.Queue) {
	pending, synced := queue != nil && queue.ListPending(), state != nil && state.Synced
	caughtUp := c.CaughtUp(synced, pending)
	s.Flag(descSynced, synced, id)
	s.Flag(descCaughtUp, caughtUp, id)
	s.Flag(descUntrusted, c.Untrusted(pending) != "", id)
	switch {
	case !synced: // no age: without data, any age would look fresh
	case caughtUp:
		s.Gauge(descAge, 0, id)
	default:
		s.Gauge(descAge, c.Age(now, state.Proven()).Seconds(), id)
	}
	if state != nil {
		s.Gauge(descObjects, float64(state.Count), id)
		s.Gauge(descBytes, float64(state.Bytes), id)
	}
	for _, t := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
		s.Counter(descEvents, float64(c.Events[t]), id, string(t))
	}
	for _, r := range store.Reasons() {
		s.Counter(descRelists, float64(c.Lists[r]), id, string(r))
	}
	for _, k := range upstream.ErrorClasses() {
		s.Counter(descFailures, float64(c.Failures[k]), id, string(k))
	}
	s.Counter(descHeldBack, float64(c.HeldBack), id)
	s.Counter(descResumes, float64(c.Resumes), id)
	s.Counter(descSkipped, float64(c.Skipped), id)
	s.Counter(descChanges, float64(c.Counts.Added), id, "added")
	s.Counter(descChanges, float64(c.Counts.Updated), id, "updated")
	s.Counter(descChanges, float64(c.Counts.Deleted), id, "deleted")
	s.Counter(descStale, float64(c.Counts.Stale), id)
	if queue != nil {
		s.Gauge(descQueueLen, float64(queue.Len()), id)
		s.Gauge(descQueueBytes, float64(queue.Bytes()), id)
	}
}

// Store sends the metrics of a store. refusing is set if the store refuses changes of a collection.
func (s Sender) Store(x store.Stats, refusing bool) {
	s.Counter(descCommits, float64(x.Commits))
	s.Counter(descCommitTime, x.CommitTime.Seconds())
	s.Counter(descSyncTime, x.SyncTime.Seconds())
	s.Counter(descPages, float64(x.PagesWritten))
	s.Gauge(descFile, float64(x.FileBytes))
	s.Counter(descCompact, float64(x.Compactions))
	s.Counter(descCompactFor, x.CompactTime.Seconds())
	s.Counter(descReclaimed, float64(x.CompactedBytes))
	if x.EncryptionKey != "" {
		s.Gauge(descKey, 1, x.EncryptionKey)
	}
	s.Flag(descRekey, x.EncryptionDue)
	s.Flag(descFailing, refusing || x.FlushError != nil)
	s.Counter(descReadFaults, float64(x.ReadFaults))
}
