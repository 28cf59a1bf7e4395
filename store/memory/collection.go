package memory

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/store"
)

// collection is what is stored under one ID, shared by all who opened it.
type collection struct {
	db *DB
	id string

	// published is what readers see. What it points to is never changed.
	published atomic.Pointer[snapshot]

	// mu is held by a writer while it works; readers never take it.
	mu      sync.Mutex
	work    *content     // equal to the published content; its trees belong to the writer
	repl    *replacement // the open one, nil where there is none
	dropped bool
}

// snapshot is one consistent state of a collection.
type snapshot struct {
	info  store.Info
	state store.State
	*content
}

// handle is a collection with the identity that one call of DB.Open gave.
type handle struct {
	*collection
	want store.Info
}

var _ store.Collection = (*handle)(nil)

func newCollection(db *DB, info store.Info) *collection {
	c := &collection{db: db, id: info.ID, work: &content{}}
	c.published.Store(&snapshot{info: info, content: &content{}})
	return c
}

// open brings the collection to what DB.Open promises for info and indexes.
func (c *collection) open(info store.Info, indexes []store.Index) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.published.Load()
	sameScope := now.info.Scope() == info.Scope()
	empties := !sameScope && !now.state.Synced
	if c.repl != nil && (empties || !c.sameIndexes(indexes)) {
		return c.wrap(store.ErrReplacing)
	}
	next, base := *now, c.work
	if empties {
		// A checkpoint of another scope means nothing, and objects without a
		// complete list behind them are nothing to keep readable.
		next.state, base = store.State{}, &content{}
	}
	if empties || sameScope {
		next.info = info
	}
	work := base.copy()
	work.reindex(indexes)
	c.install(work, next)
	return nil
}

// sameIndexes reports whether the collection has exactly these, by name and spec.
func (c *collection) sameIndexes(indexes []store.Index) bool {
	if len(indexes) != len(c.work.indexes) {
		return false
	}
	for i, x := range indexes {
		if have := c.work.indexes[i]; have.Name != x.Name || have.Spec != x.Spec {
			return false
		}
	}
	return true
}

// install makes work the collection's content and publishes it with the info,
// checkpoint and sync mark of s. The caller holds mu.
func (c *collection) install(work *content, s snapshot) {
	c.work = work
	s.content = work.copy()
	s.state.Count, s.state.Bytes = int64(work.objects.Len()), work.bytes
	c.published.Store(&s)
}

// Info implements [store.Collection].
func (c *collection) Info() store.Info { return c.published.Load().info }

// State implements [store.Collection].
func (c *collection) State() store.State { return c.published.Load().state }

// apply applies a batch of a handle whose scope is the stored one. The caller holds
// mu.
func (c *collection) apply(b store.Batch) error {
	work := c.work.copy()
	next := *c.published.Load()
	known := next.state.RV
	if b.Checkpoint != (store.Checkpoint{}) {
		next.state.Checkpoint = b.Checkpoint
	}
	old, err := work.apply(b.Changes)
	if err != nil {
		return c.wrap(err)
	}
	if err := work.feed.record(b.Changes, old, known, next.state.Checkpoint); err != nil {
		return c.wrap(err)
	}
	c.install(work, next)
	c.db.commits.Add(1)
	return nil
}

// Apply implements [store.Collection].
func (h *handle) Apply(b store.Batch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.writable(); err != nil {
		return h.wrap(err)
	}
	if h.Info().Scope() != h.want.Scope() {
		return h.wrap(store.ErrScope)
	}
	return h.apply(b)
}

// Replace implements [store.Collection].
func (h *handle) Replace() (store.Replacement, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.writable(); err != nil {
		return nil, h.wrap(err)
	}
	h.repl = &replacement{c: h.collection, info: h.want, work: h.work.copy(), touched: map[string]string{}}
	return h.repl, nil
}

// View implements [store.Collection].
func (c *collection) View() (store.View, error) {
	if err := c.db.beginView(); err != nil {
		return nil, c.wrap(err)
	}
	s := c.published.Load()
	if s.content == nil {
		c.db.views.Done()
		return nil, c.wrap(store.ErrNoCollection)
	}
	return &view{c: c, snapshot: s}, nil
}

// writable says why the collection takes no changes. The caller holds mu.
func (c *collection) writable() error {
	switch err := c.db.checkOpen(); {
	case err != nil:
		return err
	case c.dropped:
		return store.ErrNoCollection
	case c.repl != nil:
		return store.ErrReplacing
	}
	return nil
}

// drop lets the content go.
func (c *collection) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped, c.work, c.repl = true, &content{}, nil
	c.published.Store(&snapshot{info: c.published.Load().info})
}

// wrap puts the collection's ID before an error.
func (c *collection) wrap(err error) error {
	return fmt.Errorf("collection %s: %w", c.id, err)
}
