package memory

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// collection is the content under one ID. Its owner and the readers share it.
type collection struct {
	db *DB
	id string

	// writer serializes writers. Its holder may read now without mu.
	writer sync.Mutex
	repl   *replacement // the open replacement, nil if there is none; guarded by writer

	// ordering is held while the trees of now are brought up to date.
	ordering sync.Mutex

	// mu guards the fields below. It is held for a small batch at most: longer changes are made
	// in a draft.
	mu      sync.RWMutex
	now     *content  // the newest state; only the holder of writer replaces it
	seen    *snapshot // of now, nil until a reader needs one; never changed
	version int       // counts the changes of now
	about   store.Description
}

// mostInPlace is the maximum number of changes that are made under mu. A reader may wait for them,
// for a few tenths of a millisecond.
const mostInPlace = 512

// Collection is an open collection in memory. It also has read methods that need no view; two calls of
// these may read two states.
type Collection struct {
	*collection
	owner *store.Owner
	want  *store.Info // the collection's Info after a replacement; guarded by writer
}

var _ store.Collection = (*Collection)(nil)

// Indexed implements [store.Collection]: indexes are built when the collection is opened.
func (c *Collection) Indexed() <-chan struct{} { return nil }

// Reopen implements [store.Collection], and opens the collection for the first time.
func (c *Collection) Reopen(info store.Info, all ...store.Index) error {
	indexes, _, err := store.SortIndexes(all) // no history, so that its index has no use
	if err == nil && info.ID != c.id {
		err = fmt.Errorf("it can't be opened again as %s", info.ID)
	}
	if err != nil {
		return c.wrap(err)
	}
	c.writer.Lock()
	defer c.writer.Unlock()
	if err := c.writableLocked(); err != nil {
		return c.wrap(err)
	}
	c.want = &info
	c.db.owners.Update(c.owner, info)
	sameScope := c.now.info.Scope() == info.Scope()
	if sameScope && c.now.hasIndexes(indexes) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now.info, c.now.indexes = &info, indexes
		c.changedLocked()
		return nil
	}
	d := c.draftLocked()
	if !sameScope && !c.now.state.Synced {
		// A checkpoint of another scope is not valid, and objects without a complete list
		// are not worth keeping readable.
		d = newContent(&info)
	}
	if sameScope {
		d.info = &info
	}
	d.reindex(indexes)
	c.installLocked(d)
	return nil
}

// Close implements [store.Collection].
func (c *Collection) Close() error {
	c.writer.Lock()
	defer c.writer.Unlock()
	if c.owner.Err() == nil && c.repl != nil {
		c.repl.endLocked()
	}
	c.db.owners.End(c.owner, store.ErrClosed)
	return nil
}

// draftLocked returns a copy of the newest state, to be changed and installed, with writer locked. It
// copies the map and the records.
func (c *collection) draftLocked() *content {
	s := c.snapshot()
	c.mu.Lock()
	d := *c.now
	d.values = c.now.values.copy()
	c.mu.Unlock()
	d.trees, d.records, d.byKey = s.trees.copy(), slices.Clone(d.records), maps.Clone(d.byKey)
	return &d
}

// installLocked makes a draft the newest state, with writer locked.
func (c *collection) installLocked(d *content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = d
	c.changedLocked()
}

// changedLocked notes that now has changed, with mu locked.
func (c *collection) changedLocked() {
	c.seen = nil
	c.version++
}

// snapshot returns the newest state for readers. It orders the changes since the previous
// snapshot, meanwhile the collection can be changed.
func (c *collection) snapshot() *snapshot {
	c.mu.RLock()
	s := c.seen
	c.mu.RUnlock()
	if s != nil {
		return s
	}
	c.ordering.Lock()
	defer c.ordering.Unlock()
	c.mu.Lock()
	if c.seen != nil {
		defer c.mu.Unlock()
		return c.seen
	}
	now, version, catchUp := c.now, c.version, c.now.catchUp()
	s = &snapshot{info: now.info, state: now.state, indexes: now.indexes, gone: now.gone, about: c.about}
	c.mu.Unlock()
	t := catchUp()
	s.trees = t.copy()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now.stale {
		now.trees = t
	}
	if c.version == version {
		c.seen = s
	}
	return s
}

// Describe implements [store.Collection].
func (c *Collection) Describe(d store.Description) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.unreadable(); err != nil {
		return err
	}
	c.about = d
	c.changedLocked()
	return nil
}

// Info implements [store.Collection].
func (c *collection) Info() store.Info {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return *c.now.info
}

// State implements [store.Collection].
func (c *collection) State() store.State {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.now.state
}

// Apply implements [store.Collection].
func (c *Collection) Apply(b store.Batch) error {
	c.writer.Lock()
	defer c.writer.Unlock()
	if err := c.writableLocked(); err != nil {
		return c.wrap(err)
	}
	if info := c.now.info; info != c.want && info.Scope() != c.want.Scope() {
		return c.wrap(store.ErrScope)
	}
	var few [1]change
	changes, err := c.now.prepare(b.Changes, few[:0])
	if err != nil {
		return c.wrap(err)
	}
	if len(changes) > mostInPlace {
		d := c.draftLocked()
		d.apply(changes, b.Checkpoint)
		c.installLocked(d)
	} else {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changedLocked()
		c.now.apply(changes, b.Checkpoint)
	}
	c.db.commits.Add(1)
	return nil
}

// Replace implements [store.Collection].
func (c *Collection) Replace() (store.Replacement, error) {
	c.writer.Lock()
	defer c.writer.Unlock()
	if err := c.writableLocked(); err != nil {
		return nil, c.wrap(err)
	}
	c.repl = &replacement{c: c, info: c.want, draft: c.draftLocked()}
	return c.repl, nil
}

// View implements [store.Collection].
func (c *Collection) View() (store.View, error) {
	if err := c.unreadable(); err != nil {
		return nil, err
	}
	return c.collection.View()
}

// View returns a view of the newest state.
func (c *collection) View() (store.View, error) {
	if err := c.db.beginView(); err != nil {
		return nil, c.wrap(err)
	}
	s := c.snapshot()
	if s.gone {
		c.db.views.Done()
		return nil, c.wrap(store.ErrNoCollection)
	}
	return &view{snapshot: s, c: c}, nil
}

// Get returns the object at key, or [store.ErrNotFound].
func (c *Collection) Get(key string) (*object.Object, error) {
	c.mu.RLock()
	o := c.now.object(key)
	c.mu.RUnlock()
	if err := c.unreadable(); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, c.notFound(key)
	}
	return o, nil
}

// Header implements [store.Collection].
func (c *Collection) Header(key string) (store.Header, error) {
	o, err := c.Get(key)
	if err != nil {
		return store.Header{}, err
	}
	return header(key, o), nil
}

// Lookup implements [store.Collection].
func (c *Collection) Lookup() store.Lookup { return c }

// Value returns the object at key in the form of [Collection.Values]. ok is false if there is none,
// or the collection can't be read; Get returns the error.
func (c *Collection) Value(key string) (v any, ok bool) {
	c.mu.RLock()
	e, ok := c.now.byKey[key]
	c.mu.RUnlock()
	return e.value, ok && !c.db.closed.Load() && c.owner.Err() == nil
}

// Values returns all objects, in no order: each in its Go form, which the caller must not change,
// or as an *object.Object if it has none. encoded is the number of objects without a Go form. The
// caller owns the slice.
func (c *Collection) Values() (list []any, encoded int64, err error) {
	c.mu.Lock()
	values, encoded := c.now.values.copy(), c.now.encoded
	c.mu.Unlock()
	if err := c.unreadable(); err != nil {
		return nil, 0, err
	}
	return values.all(), encoded, nil
}

// ValuesByIndex is Values for the objects that have value in an index, ordered by key. It returns
// [store.ErrNoIndex] if there is no such index.
func (c *Collection) ValuesByIndex(index, value string) (list []any, err error) {
	v := view{snapshot: c.snapshot(), c: c.collection} // Close does not wait for this reader
	if err := c.unreadable(); err != nil {
		return nil, err
	}
	err = v.ascend(index, value, store.IndexEntry{Value: value}, func(e indexEntry) bool {
		if e.Value == value {
			list = append(list, e.record.value)
		}
		return e.Value == value
	})
	return list, err
}

// unreadable returns an error if the store is closed or the collection has another owner, or none. A
// reader calls it after it has read.
func (c *Collection) unreadable() error {
	if c.db.closed.Load() {
		return c.wrap(store.ErrClosed)
	}
	if err := c.owner.Err(); err != nil {
		return c.wrap(err)
	}
	return nil
}

func (c *collection) notFound(key string) error {
	return fmt.Errorf("collection %s: %s: %w", c.id, key, store.ErrNotFound)
}

// writableLocked returns an error if the collection takes no changes.
func (c *Collection) writableLocked() error {
	switch {
	case c.db.closed.Load():
		return store.ErrClosed
	case c.owner.Err() != nil:
		return c.owner.Err()
	case c.repl != nil:
		return store.ErrReplacing
	}
	return nil
}

// drop empties the collection and makes its views return ErrNoCollection from then on.
func (c *collection) drop() {
	c.writer.Lock()
	defer c.writer.Unlock()
	d := newContent(c.now.info)
	d.gone, c.repl = true, nil
	c.installLocked(d)
}

// wrap adds the collection's ID to an error.
func (c *collection) wrap(err error) error { return fmt.Errorf("collection %s: %w", c.id, err) }
