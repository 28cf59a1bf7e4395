package informer

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// handle is a collection whose indexes can change while it is in use: the handle then opens the
// collection again, between two writes.
//
// While a handle is the owner, that of the running informer, other handles can't read, write or open
// the collection. If there is no owner, any handle can, after opening it with its own indexes.
type handle struct {
	db   store.DB
	info store.Info
	seat *seat

	// decode returns an object with its Go form, for a mirror; nil if the collection needs none.
	decode func(*object.Object) *object.Object

	refused error                  // why the collection can't be opened; nil if it can
	current atomic.Pointer[opened] // the newest opening by this handle
}

// opened is a collection as the store returned it, with the tenure of that opening.
type opened struct {
	store.Collection
	tenure *tenure
}

func newHandle(db store.DB, info store.Info, refused error) *handle {
	h := &handle{db: db, info: info, refused: refused}
	if reflect.ValueOf(db).Comparable() {
		h.seat = seatOf(db, info.ID)
	} else {
		// Another informer of the same collection would not be noticed.
		h.seat, h.refused = &seat{}, fmt.Errorf("a store of type %T can't be compared with another: pass a pointer", db)
	}
	return h
}

// open opens the collection with indexes, for the first time or again. It waits for a list that is
// in progress, and fails while another handle is the owner.
func (h *handle) open(indexes []store.Index) error {
	if h.refused != nil {
		return h.refused
	}
	if err := h.seat.free(h); err != nil {
		return err // without waiting for the owner's list
	}
	h.seat.writing.Lock()
	defer h.seat.writing.Unlock()
	if err := h.seat.free(h); err != nil {
		return err
	}
	now := &opened{tenure: &tenure{}}
	var was *mirror
	if h.isOpen() {
		before := h.current.Load()
		now.tenure = before.tenure // reads in progress stay valid
		was, _ = before.Collection.(*mirror)
	}
	var err error
	if h.decode == nil {
		now.Collection, err = h.db.Open(h.info, indexes...)
	} else {
		now.Collection, err = openMirror(h.db, was, h.info, indexes, h.decode)
	}
	if err != nil {
		return err
	}
	h.seat.tenure.Store(now.tenure)
	h.current.Store(now)
	return nil
}

// isOpen reports whether this handle was the last to open the collection.
func (h *handle) isOpen() bool {
	c := h.current.Load()
	return c != nil && h.seat.tenure.Load() == c.tenure
}

// memory returns the collection that holds all objects in memory, nil if there is none.
func (c *opened) memory() *memory.Collection {
	switch c := c.Collection.(type) {
	case *memory.Collection:
		return c
	case *mirror:
		return c.Collection
	}
	return nil
}

// inMemory returns the newest opening if this handle made it and its objects are in memory. A read
// is valid only if [handle.holds] returns nil afterwards.
func (h *handle) inMemory() (c *memory.Collection, at *opened) {
	at = h.current.Load()
	if at == nil || h.seat.tenure.Load() != at.tenure {
		return nil, nil
	}
	return at.memory(), at
}

// holds returns an error if the collection was opened by another handle since c, or has
// another owner.
func (h *handle) holds(c *opened) error {
	if h.seat.tenure.Load() == c.tenure {
		return nil
	}
	if err := h.seat.free(h); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q in %s was opened again meanwhile", ErrInUse, h.info.ID, nameOf(h.db))
}

func (h *handle) Info() store.Info { return h.current.Load().Info() }

func (h *handle) State() store.State { return h.current.Load().State() }

func (h *handle) Header(key string) (store.Header, error) {
	c := h.current.Load()
	header, err := c.Header(key)
	if held := h.holds(c); held != nil {
		return store.Header{}, held
	}
	return header, err
}

func (h *handle) Lookup() store.Lookup { return h.current.Load().Lookup() }

func (h *handle) View() (store.View, error) {
	c := h.current.Load()
	v, err := c.View()
	if err != nil {
		return nil, err
	}
	if err := h.holds(c); err != nil { // checked after the view was opened, which may be of a later state than c
		v.Close()
		return nil, err
	}
	return v, nil
}

func (h *handle) Apply(b store.Batch) error {
	return h.write(func(c store.Collection) error { return c.Apply(b) })
}

func (h *handle) Describe(d store.Description) error {
	return h.write(func(c store.Collection) error { return c.Describe(d) })
}

func (h *handle) write(change func(store.Collection) error) error {
	h.seat.writing.Lock()
	defer h.seat.writing.Unlock()
	c := h.current.Load()
	if err := h.holds(c); err != nil {
		return err
	}
	return change(c.Collection)
}

func (h *handle) Replace() (store.Replacement, error) {
	h.seat.writing.Lock()
	c := h.current.Load()
	err := h.holds(c)
	var r store.Replacement
	if err == nil {
		r, err = c.Replace()
	}
	if err != nil {
		h.seat.writing.Unlock()
		return nil, err
	}
	return &replacing{Replacement: r, end: sync.OnceFunc(h.seat.writing.Unlock)}, nil
}

// replacing is a replacement that holds the seat's lock, so that the collection can't be opened
// again, until it ends.
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
