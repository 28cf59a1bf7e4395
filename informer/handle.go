package informer

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// ErrInUse means that the collection has another owner, which is usually another informer. Reads of
// the indexer return it too. It is [store.ErrInUse].
var ErrInUse = store.ErrInUse

// handle is the collection of an indexer. It is open, and owned, while the informer runs; a store that
// no one else has stays open. Otherwise reads are of the stored objects, and a write opens the collection
// for the time of the write.
type handle struct {
	db      store.DB
	private bool        // no one else has the store, so the collection stays open
	failed  func(error) // gets the error of each object that a read by an index leaves out
	refused error       // why the collection can't be used; nil if it can

	// decode returns an object with its Go form, for a mirror; nil if the collection needs none.
	decode func(*object.Object) *object.Object

	// opening is held while the collection is opened, opened again or closed, and while it is used
	// without being open. It guards the fields below.
	opening sync.Mutex
	info    store.Info // constant once the informer has started
	indexes []store.Index
	current atomic.Pointer[opened] // nil while the collection is not open; read without opening
}

// dir returns the directory of the store's file, empty if the store has none.
func (h *handle) dir() string {
	if path := h.db.Stats().Path; path != "" {
		return filepath.Dir(path)
	}
	return ""
}

// own opens the collection, unless it is open.
func (h *handle) own() (*opened, error) {
	h.opening.Lock()
	defer h.opening.Unlock()
	if c := h.current.Load(); c != nil {
		return c, nil
	}
	c, err := h.openLocked(h.decode)
	if err == nil {
		h.current.Store(c)
	}
	return c, err
}

// openLocked opens the collection: as a mirror, if decode is not nil.
func (h *handle) openLocked(decode func(*object.Object) *object.Object) (*opened, error) {
	if h.refused != nil {
		return nil, h.refused
	}
	var c store.Collection
	var err error
	if decode != nil {
		c, err = openMirror(h.db, h.info, h.indexes, decode)
	} else {
		c, err = h.db.Open(h.info, h.indexes...)
	}
	if err != nil {
		return nil, hinted(err)
	}
	return &opened{Collection: c, memory: memoryOf(c)}, nil
}

// hinted adds a hint for programs with informers to the error of a collection in use.
func hinted(err error) error {
	if errors.Is(err, ErrInUse) {
		err = fmt.Errorf("%w; share that informer or its factory, or give this one another id or store (informer.WithStore)",
			err)
	}
	return err
}

// reopenLocked sets the indexes. If the collection is open, it waits for a list that is in progress.
func (h *handle) reopenLocked(indexes []store.Index) error {
	if c := h.current.Load(); c != nil {
		if err := c.Reopen(h.info, indexes...); err != nil {
			return err
		}
	}
	h.indexes = indexes
	return nil
}

// close gives the collection up, so that another informer can run. It waits for a write.
func (h *handle) close() error {
	h.opening.Lock()
	defer h.opening.Unlock()
	c := h.current.Load()
	if c == nil || h.private {
		return nil
	}
	h.current.Store(nil)
	return c.Close()
}

// inMemory returns the collection if it is open and its objects are in memory, else nil. Its reads
// return [store.ErrClosed] once it is not open any more.
func (h *handle) inMemory() *memory.Collection {
	if c := h.current.Load(); c != nil {
		return c.memory
	}
	return nil
}

// State returns the state of the collection; zero if it is not open.
func (h *handle) State() (state store.State) {
	if c := h.current.Load(); c != nil {
		state = c.State()
	}
	return state
}

// View returns a view of the collection, open or not. If it is not open, View fails while it has another
// owner, whose objects may be of another scope.
func (h *handle) View() (store.View, error) {
	if c := h.current.Load(); c != nil {
		if v, err := c.View(); !errors.Is(err, store.ErrClosed) {
			return v, err
		}
	}
	h.opening.Lock()
	defer h.opening.Unlock()
	if c := h.current.Load(); c != nil {
		return c.View()
	}
	if h.refused != nil {
		return nil, h.refused
	}
	v, err := h.db.View(h.info.ID)
	if o := h.db.Owner(h.info.ID); o != nil { // asked after the view was opened, which may be of a later state
		if err == nil {
			v.Close()
		}
		return nil, hinted(&store.InUseError{Info: h.info, Path: h.db.Stats().Path, Owner: o})
	}
	if errors.Is(err, store.ErrNoCollection) {
		var empty store.Collection
		if empty, err = memory.New().Open(h.info); err == nil {
			v, err = empty.View()
		}
	}
	if err != nil {
		return nil, err
	}
	return storedView{v, h.indexes, h.failed}, nil
}

// write calls change with the collection. If the collection is not open, it is for the time of the call.
func (h *handle) write(change func(store.Collection) error) (err error) {
	c := h.current.Load()
	if c == nil {
		h.opening.Lock()
		defer h.opening.Unlock()
		if c = h.current.Load(); c == nil {
			if c, err = h.openLocked(nil); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.Close()) }()
		}
	}
	return change(c)
}
