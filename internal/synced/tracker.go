// Package synced tells when the first list of a collection was handled.
//
// It does what client-go's package tools/cache/synctrack does since 0.36. A program's client-go may be older.
package synced

import "sync"

// Tracker is synced when its source has named each part of a first list, and all parts were handled. It is a
// [k8s.io/client-go/tools/cache.DoneChecker], and safe for concurrent use.
type Tracker struct {
	name string
	done chan struct{} // closed once synced

	mu      sync.Mutex
	pending int  // started and not finished
	named   bool // the source has called Named
}

// New returns a tracker. The name is for its waiters.
func New(name string) *Tracker { return &Tracker{name: name, done: make(chan struct{})} }

// Start adds one part of the first list.
func (t *Tracker) Start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending++
}

// Finished ends one part that was started. It panics if there is none.
func (t *Tracker) Finished() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	if t.pending < 0 {
		panic("synced: finished more than was started")
	}
	t.closeLocked()
}

// Named ends the first list: each part was started. It may be called again.
func (t *Tracker) Named() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.named = true
	t.closeLocked()
}

func (t *Tracker) closeLocked() {
	if t.named && t.pending == 0 && !t.HasSynced() {
		close(t.done)
	}
}

// HasSynced reports whether the tracker is synced. It stays so.
func (t *Tracker) HasSynced() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Done returns a channel that is closed once the tracker is synced.
func (t *Tracker) Done() <-chan struct{} { return t.done }

// Name returns the name that New got.
func (t *Tracker) Name() string { return t.name }
