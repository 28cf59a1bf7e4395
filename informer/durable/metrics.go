package durable

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/pipeline"
)

var descDurable = pipeline.Metric("store_durable",
	"1 if the cache is in a file, 0 with the reason if its directory could not be used and it is in memory.", "path", "reason")

// metrics are the metrics of a cache and of its informers, until the cache is closed. They are not
// described, as a registry refuses the same description twice, and a program may open two caches.
type metrics struct {
	informers *informer.Metrics
	path      string
	reason    string // empty for a durable cache
	closed    atomic.Bool
}

func (*metrics) Describe(chan<- *prometheus.Desc) {}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	if m.closed.Load() {
		return
	}
	pipeline.Sender(ch).Flag(descDurable, m.reason == "", m.path, m.reason)
	m.informers.Collect(ch)
}
