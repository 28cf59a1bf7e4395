package e2e

import (
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// counters are the values of one metric of an agent by one of its labels.
type counters map[string]int

// total returns the sum of the values, except those of some labels.
func (c counters) total(but ...string) int {
	n := 0
	for _, v := range c {
		n += v
	}
	for _, name := range but {
		n -= c[name]
	}
	return n
}

// counters scrapes a metric of a collection, by label.
func (a *agent) counters(metric, collection, label string) counters {
	a.t.Helper()
	families := harness.Metrics(a.t, a.metrics)
	require.Contains(a.t, families, metric)
	values := counters{}
	for _, m := range families[metric].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["collection"] == collection {
			values[labels[label]] += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	return values
}

// events returns the watch events that the agent received for a collection, by type.
func (a *agent) events(collection string) counters {
	a.t.Helper()
	return a.counters("snapcache_events_total", collection, "type")
}

// changes returns the agent's writes to a collection: added, updated, deleted.
func (a *agent) changes(collection string) counters {
	a.t.Helper()
	return a.counters("snapcache_store_changes_total", collection, "op")
}

// relists returns the agent's complete lists of a collection by reason.
func (a *agent) relists(collection string) counters {
	a.t.Helper()
	return a.counters("snapcache_relists_total", collection, "reason")
}
