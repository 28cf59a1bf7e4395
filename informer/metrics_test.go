package informer_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/informer"
)

func gather(t *testing.T, m *informer.Metrics) []*dto.MetricFamily {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	require.NoError(t, err)
	return families
}

// scrape returns the value of a metric of the collection pods, with its other label.
func scrape(t *testing.T, m *informer.Metrics, name, label string) float64 {
	for _, f := range gather(t, m) {
		if f.GetName() != "snapcache_"+name {
			continue
		}
		for _, x := range f.GetMetric() {
			values := make([]string, 0, 2)
			for _, l := range x.GetLabel() {
				values = append(values, l.GetValue())
			}
			if label == "" || strings.Contains(strings.Join(values, " "), label) {
				return x.GetGauge().GetValue() + x.GetCounter().GetValue()
			}
		}
	}
	require.Failf(t, "no such metric", "%s %s", name, label)
	return 0
}

// Metrics has the counts of an informer while it runs, and those of its store.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, m := newServer(), boltDB(t, filepath.Join(t.TempDir(), "db")), informer.NewMetrics()
		s.put("a")
		require.Empty(t, gather(t, m))
		r := run(t, newInformer(s, informer.WithStore(db, "pods"), informer.WithMetrics(m)))
		synctest.Wait()
		for _, change := range []func(){func() { s.put("a") }, func() { s.put("b") }, func() { s.remove("b") }, s.elsewhere} {
			change()
			synctest.Wait() // each in a batch of its own
		}
		synctest.Wait()
		s.hangUp()
		time.Sleep(time.Minute)
		synctest.Wait()
		for name, want := range map[string]float64{
			"collection_objects": 1, "collection_synced": 1, "collection_caught_up": 1, "collection_checkpoint_age_seconds": 0,
			"events_total ADDED": 1, "events_total MODIFIED": 1, "events_total DELETED": 1, "events_total BOOKMARK": 1,
			"relists_total initial": 1, "relists_total expired": 0, "resumes_total": 1,
			"store_changes_total added": 2, "store_changes_total updated": 1, "store_changes_total deleted": 1, "skipped_total": 0, "read_errors_total": 0,
			"queue_length": 0, "store_refusing": 0, "store_failing": 0,
		} {
			name, label, _ := strings.Cut(name, " ")
			require.EqualValues(t, want, scrape(t, m, name, label), "%s %s", name, label)
		}
		require.Positive(t, scrape(t, m, "store_file_bytes", ""))
		r.stop()
		require.Empty(t, gather(t, m), "an informer that has ended still has metrics")
		require.NoError(t, db.Close())
	})
}
