package informer

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// mirror is a collection of a durable store whose objects are all in memory too, decoded: see [All].
// Every write goes to the durable collection first. Every read is of the memory, which also has the
// indexes, so that the durable store needs none.
//
// If a write is durable but not in memory, readers keep the state before it. Before the next write
// the memory is loaded again from the durable collection.
type mirror struct {
	durable store.Collection
	info    store.Info // the argument of the newest opening
	indexes []store.Index
	decode  func(*object.Object) *object.Object

	now    atomic.Pointer[mirrored]
	behind bool // the memory may lack a durable write; only for the writer
}

var _ store.Collection = (*mirror)(nil)

// mirrored is the content of a mirror in memory.
type mirrored struct {
	*memory.Collection
	db *memory.DB

	// corrupt has the error of each record that could not be read; it is never changed. A key that is
	// in memory too was repaired since.
	corrupt map[string]error
}

// openMirror opens a mirror of the collection info.ID of a durable store. was is the mirror that was
// opened before, nil if there is none or another writer came since: its objects are read again only
// if the memory does not have all of them.
//
// decode returns an object with its Go form, or the object itself if it can't be decoded. It must be
// safe for concurrent use.
func openMirror(db store.DB, was *mirror, info store.Info, indexes []store.Index, decode func(*object.Object) *object.Object) (*mirror, error) {
	// The history is the durable collection's.
	durable, err := db.Open(info, slices.DeleteFunc(slices.Clone(indexes), func(x store.Index) bool { return !x.History })...)
	if err != nil {
		return nil, err
	}
	m := &mirror{durable: durable, info: info, indexes: indexes, decode: decode}
	if was != nil && !was.behind && was.intact() != nil {
		err = m.open(was.now.Load().db, nil)
	} else {
		err = m.load()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// open makes the collection in db the content of the mirror.
func (m *mirror) open(db *memory.DB, corrupt map[string]error) error {
	c, err := db.Open(m.info, m.indexes...)
	if err != nil {
		return err
	}
	m.now.Store(&mirrored{Collection: c.(*memory.Collection), db: db, corrupt: corrupt}) //nolint:forcetypeassert // a memory.DB returns no other
	return nil
}

// load replaces the content in memory by the durable collection's.
func (m *mirror) load() error {
	changes, corrupt, err := m.read()
	if err != nil {
		return err
	}
	db := memory.New(memory.WithoutHistory())
	// Under the stored scope at first: opened under another one, the content then behaves as the
	// durable collection does.
	c, err := db.Open(m.durable.Info())
	if err != nil {
		return err
	}
	if err := fill(c, changes, m.durable.State()); err != nil {
		return err
	}
	v, err := m.durable.View()
	if err != nil {
		return err
	}
	about, err := v.Description()
	v.Close()
	if err == nil {
		err = c.Describe(about)
	}
	if err != nil {
		return err
	}
	if err := m.open(db, corrupt); err != nil {
		return err
	}
	m.behind = false
	return nil
}

// fill puts objects into an empty collection and brings it to a state.
func fill(c store.Collection, changes []store.Change, state store.State) error {
	if !state.Synced {
		return c.Apply(store.Batch{Changes: changes, Checkpoint: state.Checkpoint})
	}
	r, err := c.Replace()
	if err != nil {
		return err
	}
	if err := r.Apply(changes); err != nil {
		return err
	}
	return r.Commit(state.Checkpoint)
}

// intact returns the collection in memory, nil if it lacks a corrupt record of the durable one.
func (m *mirror) intact() *memory.Collection {
	if c := m.now.Load(); len(c.corrupt) == 0 {
		return c.Collection
	}
	return nil
}

// Info implements [store.Collection].
func (m *mirror) Info() store.Info { return m.now.Load().Info() }

// State implements [store.Collection]. Count is without the corrupt records.
func (m *mirror) State() store.State { return m.now.Load().State() }

// Header implements [store.Collection].
func (m *mirror) Header(key string) (store.Header, error) {
	c := m.now.Load()
	h, err := c.Header(key)
	return h, c.missing(key, err)
}

// missing returns the error of a corrupt record in place of [store.ErrNotFound].
func (c *mirrored) missing(key string, err error) error {
	if damage, ok := c.corrupt[key]; ok && errors.Is(err, store.ErrNotFound) {
		return damage
	}
	return err
}

// View implements [store.Collection]. The views have no history.
func (m *mirror) View() (store.View, error) {
	c := m.now.Load()
	v, err := c.View()
	if err != nil || len(c.corrupt) == 0 {
		return v, err
	}
	return newDamagedView(v, c), nil
}

// Apply implements [store.Collection].
func (m *mirror) Apply(b store.Batch) error {
	if err := m.catchUp(); err != nil {
		return err
	}
	if err := m.durable.Apply(b); err != nil {
		return err
	}
	m.behind = true
	if err := m.now.Load().Apply(b); err != nil {
		return err
	}
	m.behind = false
	m.repaired(b.Changes)
	return nil
}

// Describe implements [store.Collection].
func (m *mirror) Describe(d store.Description) error {
	if err := m.durable.Describe(d); err != nil {
		return err
	}
	return m.now.Load().Describe(d)
}

// catchUp loads the content again if the memory lacks a durable write.
func (m *mirror) catchUp() error {
	if !m.behind {
		return nil
	}
	return m.load()
}

// repaired drops the corrupt records that the changes, which are in memory, have replaced or removed.
func (m *mirror) repaired(changes []store.Change) {
	c := m.now.Load()
	if len(c.corrupt) == 0 {
		return
	}
	next := *c
	next.corrupt = maps.Clone(c.corrupt)
	for _, ch := range changes {
		delete(next.corrupt, ch.Key)
	}
	m.now.Store(&next)
}

// Replace implements [store.Collection].
func (m *mirror) Replace() (store.Replacement, error) {
	if err := m.catchUp(); err != nil {
		return nil, err
	}
	durable, err := m.durable.Replace()
	if err != nil {
		return nil, err
	}
	inMemory, err := m.now.Load().Replace()
	if err != nil {
		return nil, errors.Join(err, durable.Abort())
	}
	return &mirroredReplacement{m: m, durable: durable, memory: inMemory}, nil
}

// mirroredReplacement is a replacement of a mirror.
type mirroredReplacement struct {
	m               *mirror
	durable, memory store.Replacement
	repairs         []store.Change // of corrupt records
	committed       bool           // in the durable collection
}

// Apply implements [store.Replacement].
func (r *mirroredReplacement) Apply(changes []store.Change) error {
	if err := r.durable.Apply(changes); err != nil {
		return err
	}
	if err := r.memory.Apply(changes); err != nil {
		return err
	}
	corrupt := r.m.now.Load().corrupt
	for _, ch := range changes {
		if _, ok := corrupt[ch.Key]; ok {
			r.repairs = append(r.repairs, store.Change{Key: ch.Key})
		}
	}
	return nil
}

// Commit implements [store.Replacement].
func (r *mirroredReplacement) Commit(cp store.Checkpoint) error {
	if r.committed && r.m.behind { // the commit in memory has failed
		return r.m.catchUp()
	}
	if err := r.durable.Commit(cp); err != nil {
		return err
	}
	r.committed, r.m.behind = true, true
	if err := r.memory.Commit(cp); err != nil {
		return err
	}
	r.m.behind = false
	r.m.repaired(r.repairs)
	return nil
}

// Abort implements [store.Replacement].
func (r *mirroredReplacement) Abort() error {
	return errors.Join(r.durable.Abort(), r.memory.Abort())
}
