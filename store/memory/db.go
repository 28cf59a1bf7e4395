package memory

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/store"
)

// DB is a set of collections in memory. It is safe for concurrent use. Make one
// with [New].
type DB struct {
	// admin lets one Open or Drop at a time decide which collections there are. It
	// may be held for as long as an index takes to build.
	admin sync.Mutex

	// mu guards the fields below and is held for a few instructions only.
	mu          sync.RWMutex
	collections map[string]*collection
	closed      atomic.Bool // changed only under mu

	views   sync.WaitGroup // open views; only added to under mu while not closed
	commits atomic.Int64

	forgetful bool // collections keep no history
}

var _ store.DB = (*DB)(nil)

// New returns an empty store.
func New(opts ...Option) *DB {
	db := &DB{collections: make(map[string]*collection)}
	for _, opt := range opts {
		opt(db)
	}
	return db
}

// Option is a choice about a store that is made when it is.
type Option func(*DB)

// WithoutHistory is for programs that never ask for Changes, such as an informer: half of what
// a change costs is its place in the history. [store.View.Horizon] is zero then, and
// Changes always fails with a [store.TooOldError].
func WithoutHistory() Option { return func(db *DB) { db.forgetful = true } }

// Open implements [store.DB]. Two calls with one ID return the same collection,
// with the indexes of the newer call; each replaces it under the scope that it
// was given itself. While a replacement is open, a call that would change the
// content or the indexes fails with [store.ErrReplacing].
func (db *DB) Open(info store.Info, indexes ...store.Index) (store.Collection, error) {
	indexes, err := sortIndexes(indexes)
	if err != nil {
		return nil, fmt.Errorf("collection %s: %w", info.ID, err)
	}
	db.admin.Lock()
	defer db.admin.Unlock()
	c, err := db.collection(&info)
	if err != nil {
		return nil, err
	}
	if err := c.open(&info, indexes); err != nil {
		return nil, err
	}
	return &Collection{collection: c, want: &info}, nil
}

// collection returns the collection of that ID, which it makes if it is new.
func (db *DB) collection(info *store.Info) (*collection, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Load() {
		return nil, store.ErrClosed
	}
	c := db.collections[info.ID]
	if c == nil {
		c = &collection{db: db, id: info.ID, now: newContent(info)}
		db.collections[info.ID] = c
	}
	return c, nil
}

// lookup returns the collection of that ID, nil if there is none.
func (db *DB) lookup(id string) (*collection, error) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed.Load() {
		return nil, store.ErrClosed
	}
	return db.collections[id], nil
}

// Collections implements [store.DB].
func (db *DB) Collections() ([]store.Info, error) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed.Load() {
		return nil, store.ErrClosed
	}
	infos := make([]store.Info, 0, len(db.collections))
	for _, id := range slices.Sorted(maps.Keys(db.collections)) {
		infos = append(infos, db.collections[id].Info())
	}
	return infos, nil
}

// View implements [store.DB].
func (db *DB) View(id string) (store.View, error) {
	c, err := db.lookup(id)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, fmt.Errorf("collection %s: %w", id, store.ErrNoCollection)
	}
	return c.View()
}

// Drop implements [store.DB]. Open views stay as they are; a handle on
// the collection, or a replacement of it, returns [store.ErrNoCollection].
func (db *DB) Drop(id string) error {
	db.admin.Lock()
	defer db.admin.Unlock()
	c, err := db.lookup(id)
	if err != nil {
		return err
	}
	if c == nil {
		return nil
	}
	c.drop()
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.collections, id)
	return nil
}

// Flush implements [store.DB]. There is nothing to do.
func (db *DB) Flush() error { return nil }

// Stats implements [store.DB]. There is no file; Commits counts the batches and
// replacements that were made visible.
func (db *DB) Stats() store.Stats {
	return store.Stats{Commits: db.commits.Load()}
}

// Close implements [store.DB]: it waits for open views, so that a view that is
// never closed shows with this store as it would with the one on disk. Closing
// twice does nothing more.
func (db *DB) Close() error {
	db.mu.Lock()
	db.closed.Store(true)
	db.mu.Unlock()
	db.views.Wait()
	return nil
}

// beginView counts a view that Close has to wait for.
func (db *DB) beginView() error {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed.Load() {
		return store.ErrClosed
	}
	db.views.Add(1)
	return nil
}
