package informer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/snapcache/snapcache/store"
)

// ErrInUse means that another informer owns the collection in the same store. Reads of the indexer
// return it too.
var ErrInUse = errors.New("the collection is in use by another informer")

// seat holds the owner of a collection in a store. All handles of the collection share it.
type seat struct {
	// writing is held during an opening, during Apply, and from Replace to the end of the replacement.
	writing sync.Mutex

	// tenure is of the handle that opened the collection last; nil before that, and between take and
	// the owner's first opening.
	tenure atomic.Pointer[tenure]

	mu    sync.Mutex // guards the fields below, for a few instructions
	owner *handle    // the handle of the informer that runs; nil for none
	freed chan struct{}
}

// tenure is a period in which only one handle opens the collection. Two tenures differ by their
// address.
type tenure struct{ _ byte }

// take makes h the owner. If another handle is the owner, take returns that one and a channel that
// is closed when the owner leaves.
func (s *seat) take(h *handle) (other *handle, freed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != nil {
		return s.owner, s.freed
	}
	s.owner, s.freed = h, make(chan struct{})
	if !h.isOpen() {
		s.tenure.Store(nil) // from now on the views of other handles fail
	}
	return nil, nil
}

// leave ends the ownership that take began, and wakes the waiting informers.
func (s *seat) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.freed)
	s.owner, s.freed = nil, nil
}

// free returns an error while a handle other than h is the owner.
func (s *seat) free(h *handle) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == nil || s.owner == h {
		return nil
	}
	return h.inUse(s.owner)
}

// seats holds the seat of each collection, which is garbage collected with its last handle.
var seats = struct {
	mu sync.Mutex
	m  map[place]weak.Pointer[seat]
}{m: map[place]weak.Pointer[seat]{}}

// place is a collection in a store.
type place struct {
	db store.DB
	id string
}

// seatOf returns the seat of a collection. db must be comparable.
func seatOf(db store.DB, id string) *seat {
	at := place{db, id}
	seats.mu.Lock()
	defer seats.mu.Unlock()
	if s := seats.m[at].Value(); s != nil {
		return s
	}
	s := &seat{}
	seats.m[at] = weak.Make(s)
	runtime.AddCleanup(s, vacate, at)
	return s
}

// vacate removes a seat whose last handle was garbage collected.
func vacate(at place) {
	seats.mu.Lock()
	defer seats.mu.Unlock()
	if seats.m[at].Value() == nil { // otherwise a new seat has taken its place
		delete(seats.m, at)
	}
}

// claim makes the informer the owner of its collection. It waits until another owner has left, and
// reports the wait to the log and the watch error handler. It returns false if ctx ended first.
func (s *sharedIndexInformer) claim(ctx context.Context) bool {
	coll, log := s.indexer.coll, s.indexer.logger().With("collection", s.indexer.opts.id)
	if coll.refused != nil {
		log.Error("the informer never syncs", "error", coll.refused)
		s.report(ctx, coll.refused)
		<-ctx.Done()
		return false
	}
	for waited := false; ; waited = true {
		owner, freed := coll.seat.take(coll)
		if owner == nil {
			if waited {
				log.Info("the other informer of the collection has stopped; starting")
			}
			return true
		}
		err := coll.inUse(owner)
		log.Warn("another informer of the collection is running; waiting for it to stop, not synced until then", "error", err)
		s.report(ctx, err)
		select {
		case <-ctx.Done():
			return false
		case <-freed:
		}
	}
}

// inUse returns the error of h while owner owns the collection.
func (h *handle) inUse(owner *handle) error {
	err := fmt.Errorf("%w: %q in %s: share that informer or its factory, or give this one another id or store (informer.WithStore)",
		ErrInUse, h.info.ID, nameOf(h.db))
	if a, b := owner.info.Scope(), h.info.Scope(); a != b {
		err = fmt.Errorf("%w; that one's scope is %+v, this one's is %+v", err, a, b)
	}
	return err
}

// nameOf returns the name of a store for an error.
func nameOf(db store.DB) string {
	if path := db.Stats().Path; path != "" {
		return path
	}
	return "the store in memory"
}
