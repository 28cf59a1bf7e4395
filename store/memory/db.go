package memory

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/store"
)

// DB is a set of collections in memory. It is safe for concurrent use. [New] makes one.
type DB struct {
	// admin serializes Open and Drop. It may be held while an index is built.
	admin sync.Mutex

	// mu guards the fields below and is held for a few instructions only.
	mu          sync.RWMutex
	collections map[string]*collection
	closed      atomic.Bool // changed only under mu

	views   sync.WaitGroup // open views; Add is called under mu and only if not closed
	commits atomic.Int64
	owners  store.Owners
}

var _ store.DB = (*DB)(nil)

// New returns an empty store.
func New() *DB { return &DB{collections: make(map[string]*collection)} }

// Open implements [store.DB].
func (db *DB) Open(info store.Info, indexes ...store.Index) (store.Collection, error) {
	db.admin.Lock()
	defer db.admin.Unlock()
	shared, err := db.collection(&info)
	if err != nil {
		return nil, err
	}
	owner, err := db.owners.Take(info, "")
	if err != nil {
		return nil, err
	}
	c := &Collection{collection: shared, owner: owner}
	if err := c.Reopen(info, indexes...); err != nil {
		db.owners.End(owner, store.ErrClosed)
		return nil, err
	}
	return c, nil
}

// Owner implements [store.DB].
func (db *DB) Owner(id string) *store.Owner { return db.owners.Get(id) }

// collection returns the collection of that ID, and creates it if it is new.
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

// Drop implements [store.DB]. Open views stay as they are; a replacement of the collection returns
// [store.ErrNoCollection].
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
	db.owners.End(db.owners.Get(id), store.ErrNoCollection)
	c.drop()
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.collections, id)
	return nil
}

// Flush implements [store.DB]. There is nothing to do.
func (db *DB) Flush() error { return nil }

// Stats implements [store.DB]. Commits counts the batches and replacements that were made visible;
// nothing else is set.
func (db *DB) Stats() store.Stats {
	return store.Stats{Commits: db.commits.Load()}
}

// Close implements [store.DB]. It blocks while views are open, so that a view that is never closed
// is found with this store as with the one on disk. A second Close has no further effect.
func (db *DB) Close() error {
	db.mu.Lock()
	db.closed.Store(true)
	db.mu.Unlock()
	db.views.Wait()
	return nil
}

// beginView counts a view that Close waits for. It fails if the store is closed.
func (db *DB) beginView() error {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed.Load() {
		return store.ErrClosed
	}
	db.views.Add(1)
	return nil
}
