package reflector

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/store"
)

// MetricsObserver returns an observer that updates client-go's metrics of a reflector, for programs
// that have a provider of them. client-go still defines these metrics, but no longer updates them.
func MetricsObserver(p cache.MetricsProvider, name string) Observer {
	return &metricsObserver{
		lists: p.NewListsMetric(name), listDuration: p.NewListDurationMetric(name), itemsInList: p.NewItemsInListMetric(name),
		watches: p.NewWatchesMetric(name), shortWatches: p.NewShortWatchesMetric(name),
		watchDuration: p.NewWatchDurationMetric(name), itemsInWatch: p.NewItemsInWatchMetric(name),
		lastRV: p.NewLastResourceVersionMetric(name),
	}
}

type metricsObserver struct {
	NopObserver
	lists, watches, shortWatches                           cache.CounterMetric
	listDuration, itemsInList, watchDuration, itemsInWatch cache.SummaryMetric
	lastRV                                                 cache.GaugeMetric
}

func (f *metricsObserver) Listed(_ store.Reason, rv string, items int64, took time.Duration) {
	f.lists.Inc()
	f.listDuration.Observe(took.Seconds())
	f.itemsInList.Observe(float64(items))
	f.at(rv)
}

func (f *metricsObserver) Resumed(rv string) { f.at(rv) }

func (f *metricsObserver) Watched(events int, lasted time.Duration) {
	f.watches.Inc()
	f.watchDuration.Observe(lasted.Seconds())
	f.itemsInWatch.Observe(float64(events))
	if events == 0 && lasted < silentClose {
		f.shortWatches.Inc()
	}
}

func (f *metricsObserver) Event(_ watch.EventType, rv string) { f.at(rv) }

func (f *metricsObserver) at(rv string) {
	if n, err := strconv.ParseFloat(rv, 64); err == nil {
		f.lastRV.Set(n)
	}
}
