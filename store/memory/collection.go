package memory

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// collection is what is stored under one ID, shared by all who opened it.
type collection struct {
	db *DB
	id string

	// published is the newest state. What it points to is never changed.
	published atomic.Pointer[snapshot]

	// mu is held by a writer while it works. A reader takes it only if it is free.
	mu      sync.Mutex
	work    *content     // the newest content; it belongs to whoever holds mu
	repl    *replacement // the open one, nil where there is none
	dropped bool

	// waiting is how many readers wait for a snapshot with content, offered one that
	// a writer made for them.
	waiting atomic.Int32
	offered atomic.Pointer[snapshot]

	// hot guards byKey, and that it belongs to published. byKey has the objects of the
	// published state: a map finds one in a fraction of what a search takes.
	hot   sync.RWMutex
	byKey map[string]*object.Object
}

// snapshot is one consistent state of a collection. Its content is put in when a
// reader first asks for it: until then the writer changes its pages in place.
type snapshot struct {
	number int64       // counts states, so that later ones have higher ones
	info   *store.Info // never changed
	state  store.State
	gone   bool // the collection was dropped
	*content
}

// largeBatch is from how many changes on a batch is too long for a reader to wait
// for: what there was before it is published first.
const largeBatch = 64

// handle is a collection with the identity that one call of DB.Open gave.
type handle struct {
	*collection
	want *store.Info
}

var (
	_ store.Collection = (*handle)(nil)
	_ store.Getter     = (*handle)(nil)
)

func newCollection(db *DB, info *store.Info) *collection {
	c := &collection{db: db, id: info.ID, work: newContent(), byKey: map[string]*object.Object{}}
	c.published.Store(&snapshot{info: info})
	return c
}

// open brings the collection to what DB.Open promises for info and indexes.
func (c *collection) open(info *store.Info, indexes []store.Index) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.whole() // building an index is too long for a reader to wait for
	sameScope := now.info.Scope() == info.Scope()
	empties := !sameScope && !now.state.Synced
	if c.repl != nil && (empties || !c.sameIndexes(indexes)) {
		return c.wrap(store.ErrReplacing)
	}
	next, base := *now, c.work
	if empties {
		// A checkpoint of another scope means nothing, and objects without a
		// complete list behind them are nothing to keep readable.
		next.state, base = store.State{}, newContent()
	}
	if empties || sameScope {
		next.info = info
	}
	work := base.copy()
	work.reindex(indexes)
	objects := c.byKey
	if empties {
		objects = map[string]*object.Object{}
	}
	c.install(work, next, objects)
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

// install makes work the collection's content and objects what is in it by key,
// and publishes them with the info, checkpoint and sync mark of s. The caller
// holds mu.
func (c *collection) install(work *content, s snapshot, objects map[string]*object.Object) {
	c.work, s.content, s.number = work, nil, c.published.Load().number+1
	s.state.Count, s.state.Bytes = int64(work.objects.count), work.bytes
	c.hot.Lock()
	c.byKey = objects
	c.published.Store(&s)
	c.hot.Unlock()
}

// whole returns the newest state with its content. The caller holds mu.
func (c *collection) whole() *snapshot {
	s := c.published.Load()
	if s.content == nil && !s.gone {
		next := *s
		next.content = c.work.copy()
		s = &next
		c.published.Store(s)
	}
	return s
}

// newest is whole for readers. It waits for a batch that is being applied, if that
// is a small one; before a large one its writer has published what there was.
func (c *collection) newest() *snapshot {
	s := c.published.Load()
	if s.content != nil || s.gone {
		return s
	}
	least := s.number
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	for {
		if s := c.published.Load(); s.content != nil || s.gone {
			return s
		}
		// A writer that never rests offers what it publishes, for it may be over before
		// this goroutine looks again.
		if s := c.offered.Load(); s != nil && s.number >= least {
			return s
		}
		if c.mu.TryLock() {
			s := c.whole()
			c.mu.Unlock()
			return s
		}
		runtime.Gosched()
	}
}

// Info implements [store.Collection].
func (c *collection) Info() store.Info { return *c.published.Load().info }

// State implements [store.Collection].
func (c *collection) State() store.State { return c.published.Load().state }

// apply applies a batch of a handle whose scope is the stored one. The caller holds
// mu.
func (c *collection) apply(b store.Batch) error {
	if err := check(b.Changes); err != nil {
		return c.wrap(err)
	}
	large := len(b.Changes) >= largeBatch
	if large {
		c.whole()
	}
	next := *c.published.Load()
	known := next.state.RV
	if b.Checkpoint != (store.Checkpoint{}) {
		next.state.Checkpoint = b.Checkpoint
	}
	var few [4]*object.Object
	old := c.work.apply(b.Changes, c.byKey, few[:0])
	if err := c.work.feed.record(b.Changes, old, known, next.state.Checkpoint); err != nil {
		return c.wrap(err) // in memory it never fails
	}
	next.content, next.number = nil, next.number+1
	if large {
		next.content = c.work.copy()
	}
	next.state.Count, next.state.Bytes = int64(c.work.objects.count), c.work.bytes
	c.hot.Lock()
	c.published.Store(&next)
	for _, ch := range b.Changes {
		if ch.Object == nil {
			delete(c.byKey, ch.Key)
		} else {
			c.byKey[ch.Key] = ch.Object
		}
	}
	c.hot.Unlock()
	if c.waiting.Load() > 0 {
		c.offered.Store(c.whole())
	} else {
		c.offered.Store(nil)
	}
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
	if info := h.published.Load().info; info != h.want && info.Scope() != h.want.Scope() {
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
	s := c.newest()
	if s.gone {
		c.db.views.Done()
		return nil, c.wrap(store.ErrNoCollection)
	}
	return &view{c: c, snapshot: s}, nil
}

// Get implements [store.Getter].
func (c *collection) Get(key string) (*object.Object, error) {
	if c.db.closed.Load() {
		return nil, c.wrap(store.ErrClosed)
	}
	c.hot.RLock()
	o := c.byKey[key]
	c.hot.RUnlock()
	if o != nil {
		return o, nil
	}
	if c.published.Load().gone {
		return nil, c.wrap(store.ErrNoCollection)
	}
	return nil, c.notFound(key)
}

func (c *collection) notFound(key string) error {
	return fmt.Errorf("collection %s: %s: %w", c.id, key, store.ErrNotFound)
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
	c.dropped, c.work, c.repl = true, newContent(), nil
	c.hot.Lock()
	c.byKey = nil
	c.published.Store(&snapshot{info: c.published.Load().info, number: c.published.Load().number + 1, gone: true})
	c.hot.Unlock()
}

// wrap puts the collection's ID before an error.
func (c *collection) wrap(err error) error {
	return fmt.Errorf("collection %s: %w", c.id, err)
}
