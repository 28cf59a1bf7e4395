package informer

import (
	"strconv"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// feed keeps client-go's metrics of an informer. Only client-go's own queue and store can reach the
// provider of cache.SetInformerMetricsProvider, so feed has one of each: a queue with a placeholder
// for each key in the informer's queue, and a store without objects. A nil feed reports nothing.
type feed struct {
	store cache.Store
	queue *cache.RealFIFO

	// mu guards placed. It is held while placeholders are added, and by process until all are
	// taken: the queue may hold its own lock meanwhile.
	mu     sync.Mutex
	placed int // placeholders in queue
}

// newFeed returns the feed of an informer, nil if id is not reserved. A nil provider is client-go's
// global one.
func newFeed(id cache.InformerNameAndResource, provider cache.InformerMetricsProvider) *feed {
	if !id.Reserved() {
		return nil
	}
	return &feed{
		store: cache.NewStore(cache.MetaNamespaceKeyFunc, cache.WithStoreMetrics(id, provider)),
		queue: cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
			AtomicEvents: true, UnlockWhileProcessing: true, Identifier: id, MetricsProvider: provider,
		}),
	}
}

// stored reports the store's resourceVersion.
func (f *feed) stored(rv string) {
	if f != nil {
		f.store.Bookmark(rv)
	}
}

// queued reports how many keys wait. It never blocks: while process holds the lock, process reports
// the number.
func (f *feed) queued(waiting func() int) {
	if f == nil || !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	f.placeLocked(waiting())
}

// placeLocked adds placeholders until there are n.
func (f *feed) placeLocked(n int) {
	for ; f.placed < n; f.placed++ {
		_ = f.queue.Add(cache.ExplicitKey(strconv.Itoa(f.placed))) // an ExplicitKey is never refused
	}
}

// process calls apply, which handles a batch of this many keys, and reports how long apply takes.
// client-go's queue returns at most a thousand items at a time. A larger batch makes several
// measurements, of which only the last includes apply.
func (f *feed) process(keys int, waiting func() int, apply func() error) (err error) {
	if f == nil {
		return apply()
	}
	f.mu.Lock()
	f.placeLocked(keys + waiting())
	if f.placed == 0 { // PopBatch of an empty queue blocks
		f.mu.Unlock()
		return apply()
	}
	applied := false
	take := func(batch []cache.Delta, _ bool) error {
		if f.placed -= len(batch); f.placed > 0 {
			return nil
		}
		f.placeLocked(waiting())
		f.mu.Unlock()
		applied = true
		return apply()
	}
	for !applied {
		err = f.queue.PopBatch(take, func(any, bool) error { return take(make([]cache.Delta, 1), false) })
	}
	return err
}
