package memory

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// collection is what is stored under one ID, shared by all who opened it.
type collection struct {
	db *DB
	id string

	// number is the newest state's. It moves on under hot.
	number atomic.Int64

	// published is the newest state that somebody asked for. What it points to is never
	// changed.
	published atomic.Pointer[snapshot]

	// mu is held by a writer while it works. A reader takes it only if it is free.
	mu      sync.Mutex
	work    *content     // the newest content; it belongs to whoever holds mu
	repl    *replacement // the open one, nil where there is none
	dropped bool

	waiting atomic.Int32 // how many readers wait for a snapshot of the newest state

	// hot guards what it is held for a few instructions only for: newest, and byKey, which
	// has the objects of that state, with what they are filed as, and nothing filed for some
	// that were deleted. A map finds one in a fraction of what a search takes. The holder of mu
	// reads them without it.
	hot    sync.RWMutex
	newest head
	byKey  map[string]*filed
}

// head is a state of a collection without its content.
type head struct {
	number int64       // counts states, so that later ones have higher ones
	info   *store.Info // never changed
	state  store.State
	gone   bool // the collection was dropped
}

// snapshot is one consistent state of a collection. It is made when a reader first
// asks for it: until then the writer changes its pages in place.
type snapshot struct {
	head
	*content
}

// outdated takes the place of a snapshot that is not the newest any more: what nobody
// reads need not be kept.
var outdated = &snapshot{head: head{number: -1}}

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
	_ store.Lister     = (*handle)(nil)
)

func newCollection(db *DB, info *store.Info) *collection {
	c := &collection{db: db, id: info.ID, work: newContent(), newest: head{info: info}, byKey: map[string]*filed{}}
	c.published.Store(&snapshot{c.newest, c.work.snapshot()})
	return c
}

// open brings the collection to what DB.Open promises for info and indexes.
func (c *collection) open(info *store.Info, indexes []store.Index) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publish() // building an index is too long for a reader to wait for
	next, base, objects := c.newest, c.work, c.byKey
	sameScope := next.info.Scope() == info.Scope()
	empties := !sameScope && !next.state.Synced
	if c.repl != nil && (empties || !c.sameIndexes(indexes)) {
		return c.wrap(store.ErrReplacing)
	}
	if empties {
		// A checkpoint of another scope means nothing, and objects without a
		// complete list behind them are nothing to keep readable.
		next.state, base, objects = store.State{}, newContent(), map[string]*filed{}
	}
	if empties || sameScope {
		next.info = info
	}
	work := base.copy()
	work.reindex(indexes, objects)
	c.hot.Lock()
	defer c.hot.Unlock()
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

// install makes work the collection's content, objects what is in it by key, and next,
// but for what work tells, its newest state. The caller holds mu and hot.
func (c *collection) install(work *content, next head, objects map[string]*filed) {
	c.work = work
	next.state.Count, next.state.Bytes = int64(len(objects)), work.bytes
	c.byKey = objects
	next.number = c.newest.number + 1
	c.newest = next
	c.number.Store(next.number)
	c.published.Store(outdated)
}

// publish returns the newest state as a snapshot that readers find. The caller holds mu.
func (c *collection) publish() *snapshot {
	s := c.published.Load()
	if s.number != c.newest.number {
		s = &snapshot{c.newest, c.work.snapshot()}
		c.published.Store(s)
		c.sweep()
	}
	return s
}

// sweep takes out of the map what was deleted and has lost its place. A reader waits for a
// few only. The caller holds mu.
func (c *collection) sweep() {
	for dead := range slices.Chunk(c.work.dead, largeBatch) {
		c.hot.Lock()
		for _, f := range dead {
			if f.object == nil {
				delete(c.byKey, f.key)
			}
		}
		c.hot.Unlock()
	}
	clear(c.work.dead)
	c.work.dead = c.work.dead[:0]
}

// snapshot is publish for readers. It waits for a batch that is being applied, if that
// is a small one; before a large one its writer has published what there was.
func (c *collection) snapshot() *snapshot {
	least := c.number.Load()
	if s := c.published.Load(); s.number >= least {
		return s
	}
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	for {
		// A writer that never rests publishes a state between two batches for those who
		// wait: it may be an older one before this goroutine looks again.
		if s := c.published.Load(); s.number >= least {
			return s
		}
		if c.mu.TryLock() {
			defer c.mu.Unlock()
			return c.publish()
		}
		runtime.Gosched()
	}
}

// head returns the newest state's.
func (c *collection) head() head {
	c.hot.RLock()
	defer c.hot.RUnlock()
	return c.newest
}

// Info implements [store.Collection].
func (c *collection) Info() store.Info { return *c.head().info }

// State implements [store.Collection].
func (c *collection) State() store.State { return c.head().state }

// apply applies a batch of a handle whose scope is the stored one. The caller holds
// mu.
func (c *collection) apply(b store.Batch) error {
	if err := check(b.Changes); err != nil {
		return c.wrap(err)
	}
	large := len(b.Changes) >= largeBatch
	if large {
		c.publish()
	}
	next := &c.newest.state.Checkpoint
	if b.Checkpoint != (store.Checkpoint{}) {
		next = &b.Checkpoint
	}
	var few [4]*object.Object
	known := c.newest.state.RV
	old := c.show(b.Changes, next, few[:0])
	if !c.db.forgetful {
		if err := c.work.feed.record(b.Changes, old, known, *next); err != nil {
			return c.wrap(err) // in memory it never fails
		}
	}
	switch {
	case large || c.waiting.Load() > 0:
		c.publish()
	case c.published.Load() != outdated:
		c.published.Store(outdated)
	}
	c.db.commits.Add(1)
	return nil
}

// show makes changes, which were checked, and a checkpoint the newest state. It appends
// the object that each change took the place of to old, nil for none. The caller holds mu.
func (c *collection) show(changes []store.Change, cp *store.Checkpoint, old []*object.Object) []*object.Object {
	var few [4]refiling
	all := few[:0]
	for _, ch := range changes { // with index functions that take what they take
		all = append(all, refiling{filed: c.byKey[ch.Key], is: c.work.filed(ch)})
	}
	c.note(all, cp)
	for i := range all {
		c.work.apply(&all[i])
		old = append(old, all[i].was.object)
	}
	c.sweep()
	return old
}

// note makes changes in the map. It completes what was known of them before.
func (c *collection) note(all []refiling, cp *store.Checkpoint) {
	c.hot.Lock()
	defer c.hot.Unlock()
	s := &c.newest.state
	for i := range all {
		r := &all[i]
		if i > 0 { // the key may have come before
			r.filed = c.byKey[r.is.key]
		}
		fresh := r.filed == nil
		r.begin()
		if r.filed == nil {
			continue
		}
		if fresh {
			c.byKey[r.is.key] = r.filed
		}
		if r.was.object != nil {
			s.Count, s.Bytes = s.Count-1, s.Bytes-int64(r.was.size)
		}
		r.set(&r.is)
		if r.stays = r.is.object == nil; !r.stays {
			s.Count, s.Bytes = s.Count+1, s.Bytes+int64(r.is.size)
		}
	}
	s.Checkpoint = *cp
	c.newest.number++
	c.number.Store(c.newest.number)
}

// Apply implements [store.Collection].
func (h *handle) Apply(b store.Batch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.writable(); err != nil {
		return h.wrap(err)
	}
	if info := h.newest.info; info != h.want && info.Scope() != h.want.Scope() {
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
	work := h.work.copy()
	h.sweep()
	h.repl = &replacement{c: h.collection, info: h.want, work: work, stored: h.byKey, touched: map[string]touch{}}
	return h.repl, nil
}

// View implements [store.Collection].
func (c *collection) View() (store.View, error) {
	if err := c.db.beginView(); err != nil {
		return nil, c.wrap(err)
	}
	s := c.snapshot()
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
	var o *object.Object
	c.hot.RLock()
	if f := c.byKey[key]; f != nil {
		o = f.object
	}
	gone := c.newest.gone
	c.hot.RUnlock()
	if o != nil {
		return o, nil
	}
	if gone {
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
	c.dropped, c.repl = true, nil
	c.hot.Lock()
	defer c.hot.Unlock()
	c.install(newContent(), head{info: c.newest.info, gone: true}, nil)
}

// wrap puts the collection's ID before an error.
func (c *collection) wrap(err error) error {
	return fmt.Errorf("collection %s: %w", c.id, err)
}
