package main

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/store/bolt"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// delays is an event handler that records the age of the changes it receives, and puts the key of each object on a
// work queue, as a controller's does. A nil one records nothing.
type delays struct {
	queue workqueue.TypedInterface[string]

	mu      sync.Mutex
	handled []float64   // seconds
	waiting []time.Time // changes that are not durable yet, in order
	durable []float64
}

// newDelays returns a handler whose queue is emptied by one worker until ctx ends.
func newDelays(ctx context.Context) *delays {
	d := &delays{queue: workqueue.NewTyped[string]()}
	context.AfterFunc(ctx, d.queue.ShutDown)
	go func() {
		for {
			key, ended := d.queue.Get()
			if ended {
				return
			}
			d.queue.Done(key)
		}
	}()
	return d
}

// OnAdd receives every object at the start.
func (d *delays) OnAdd(obj any, _ bool) { d.enqueue(obj) }

func (d *delays) enqueue(obj any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		d.queue.Add(key)
	}
}

// OnDelete is not called, because the benchmark deletes nothing.
func (d *delays) OnDelete(any) {}

// OnUpdate records the age of a change.
func (d *delays) OnUpdate(_, obj any) {
	now := time.Now()
	d.enqueue(obj)
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
