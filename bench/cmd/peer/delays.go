package main

import (
	"strconv"
	"sync"
	"time"

	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/store/bolt"
	"k8s.io/apimachinery/pkg/api/meta"
)

// delays is an event handler that records the age of the changes it receives. A nil one records
// nothing.
type delays struct {
	mu      sync.Mutex
	handled []float64   // seconds
	waiting []time.Time // changes that are not durable yet, in order
	durable []float64
}

// OnAdd receives every object at the start.
func (d *delays) OnAdd(any, bool) {}

// OnDelete is not called, because the benchmark deletes nothing.
func (d *delays) OnDelete(any) {}

// OnUpdate records the age of a change.
func (d *delays) OnUpdate(_, obj any) {
	now := time.Now()
	m, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	ns, err := strconv.ParseInt(m.GetAnnotations()[peer.Stamp], 10, 64)
	if err != nil {
		return // not changed by the benchmark
	}
	at := time.Unix(0, ns)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handled = append(d.handled, now.Sub(at).Seconds())
	d.waiting = append(d.waiting, at)
}

// take returns the recorded delays and clears them.
func (d *delays) take() (handled, durable []float64) {
	if d == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	handled, durable = d.handled, d.durable
	d.handled, d.durable = nil, nil
	return handled, durable
}

// reset clears all records.
func (d *delays) reset() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handled, d.durable, d.waiting = nil, nil, nil
}

// watch records when a store commits, until done is closed: a commit makes all changes durable that
// were applied before it began. It polls every 10 ms, which limits the precision. A change has to wait for one
// poll, because a commit takes some time itself.
func (d *delays) watch(db *bolt.DB, done <-chan struct{}) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	commits, before := db.Stats().Commits, 0
	for {
		select {
		case <-done:
			return
		case now := <-ticker.C:
			n := db.Stats().Commits
			d.mu.Lock()
			before = min(before, len(d.waiting)) // reset may have been called
			if n != commits {
				for _, at := range d.waiting[:before] {
					d.durable = append(d.durable, now.Sub(at).Seconds())
				}
				d.waiting = d.waiting[before:]
			}
			commits, before = n, len(d.waiting)
			d.mu.Unlock()
		}
	}
}
