package informer

import (
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// handle is a collection whose indexes can change while it is in use: the store
// is asked for it again then, between two writes.
type handle struct {
	db   store.DB
	info store.Info

	current atomic.Pointer[opened]

	// writing is held during Apply, and from Replace to the end of the replacement.
	writing sync.Mutex
}

// opened is what the store returned.
type opened struct{ store.Collection }

var _ store.Collection = (*handle)(nil)

// open opens the collection with indexes, for the first time or again. It waits
// for a list that is on its way into the store.
func (h *handle) open(indexes []store.Index) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	c, err := h.db.Open(h.info, indexes...)
	if err != nil {
		return err
	}
	h.current.Store(&opened{c})
	return nil
}

func (h *handle) isOpen() bool { return h.current.Load() != nil }

func (h *handle) Info() store.Info          { return h.current.Load().Info() }
func (h *handle) State() store.State        { return h.current.Load().State() }
func (h *handle) View() (store.View, error) { return h.current.Load().View() }

// inMemory returns the collection if it is open and in memory.
func (h *handle) inMemory() (*memory.Collection, bool) {
	o := h.current.Load()
	if o == nil {
		return nil, false
	}
	c, ok := o.Collection.(*memory.Collection)
	return c, ok
}

func (h *handle) Apply(b store.Batch) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	return h.current.Load().Apply(b)
}

func (h *handle) Replace() (store.Replacement, error) {
	h.writing.Lock()
	r, err := h.current.Load().Replace()
	if err != nil {
		h.writing.Unlock()
		return nil, err
	}
	return &replacing{Replacement: r, end: sync.OnceFunc(h.writing.Unlock)}, nil
}

// replacing is a replacement that keeps its collection from being opened anew.
type replacing struct {
	store.Replacement
	end func()
}

func (r *replacing) Commit(cp store.Checkpoint) error {
	err := r.Replacement.Commit(cp)
	if err == nil {
		r.end()
	}
	return err
}

func (r *replacing) Abort() error {
	defer r.end()
	return r.Replacement.Abort()
}
