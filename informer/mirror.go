package informer

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// mirror is a collection of a durable store whose objects are all in memory too, decoded: see [All].
// Every write goes to the durable collection first, which checks all that the memory checks. Every
// read is of the memory, which also has the indexes, so that the durable store needs none. The views
// have neither history nor description.
type mirror struct {
	*memory.Collection
	durable store.Collection
}

// openMirror opens a mirror of the collection info.ID of a durable store. If a record is corrupt,
// openMirror returns the durable collection itself, whose reads report it.
//
// decode returns an object with its Go form, or the object itself if it can't be decoded. It must be
// safe for concurrent use.
func openMirror(
	db store.DB, info store.Info, indexes []store.Index, decode func(*object.Object) *object.Object,
) (store.Collection, error) {
	durable, err := db.Open(info, ofHistory(indexes)...)
	if err != nil {
		return nil, err
	}
	inMemory, err := load(durable, decode)
	switch {
	case errors.As(err, new(*store.CorruptionError)):
		if err = durable.Reopen(info, indexes...); err == nil {
			return durable, nil
		}
	case err == nil:
		if err = inMemory.Reopen(info, indexes...); err == nil {
			return &mirror{inMemory, durable}, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("load collection %s: %w", info.ID, err), durable.Close())
}

// ofHistory returns the index of the history, which is the durable collection's.
func ofHistory(indexes []store.Index) []store.Index {
	return slices.DeleteFunc(slices.Clone(indexes), func(x store.Index) bool { return !x.History })
}

func (m *mirror) Reopen(info store.Info, indexes ...store.Index) error {
	if err := m.durable.Reopen(info, ofHistory(indexes)...); err != nil {
		return err
	}
	return m.Collection.Reopen(info, indexes...)
}

func (m *mirror) Close() error { return errors.Join(m.durable.Close(), m.Collection.Close()) }

// load returns a collection in memory with the content of a durable one.
func load(durable store.Collection, decode func(*object.Object) *object.Object) (*memory.Collection, error) {
	changes, err := readAll(durable, decode)
	if err != nil {
		return nil, err
	}
	// Under the stored scope at first: opened again under another one, the content then behaves as the
	// durable collection does.
	opened, err := memory.New().Open(durable.Info())
	if err != nil {
		return nil, err
	}
	c := opened.(*memory.Collection) //nolint:forcetypeassert // a memory.DB returns no other
	state := durable.State()
	if !state.Synced {
		return c, c.Apply(store.Batch{Changes: changes, Checkpoint: state.Checkpoint})
	}
	r, err := c.Replace()
	if err != nil {
		return nil, err
	}
	if err := r.Apply(changes); err != nil {
		return nil, err
	}
	return c, r.Commit(state.Checkpoint)
}

// readAll reads and decodes all objects of a collection, in parallel.
func readAll(c store.Collection, decode func(*object.Object) *object.Object) ([]store.Change, error) {
	var wg sync.WaitGroup
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	var mu sync.Mutex // guards the next two
	var all []store.Change
	var errs error
	pass := func(records []store.Record) { // chunks, since one record is less work than its passing on
		running <- struct{}{}
		wg.Go(func() {
			defer func() { <-running }()
			changes, err := parse(records, decode)
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, changes...), errors.Join(errs, err)
		})
	}
	var chunk []store.Record
	var err error
	for r, failed := range scan(c.View, store.View.Records, func(r store.Record) string { return r.Key }) {
		if err = failed; err != nil {
			break
		}
		if chunk = append(chunk, r); len(chunk) == chunkObjects {
			pass(chunk)
			chunk = nil
		}
	}
	pass(chunk)
	wg.Wait()
	if err := errors.Join(err, errs); err != nil {
		return nil, err
	}
	for i := range all {
		// Keys side by side are in the processor's cache when they are compared in a lookup; beside
		// the objects they would not be.
		all[i].Key = strings.Clone(all[i].Key)
	}
	return all, nil
}

// parse returns the objects of records, decoded.
func parse(records []store.Record, decode func(*object.Object) *object.Object) (changes []store.Change, err error) {
	for _, r := range records {
		o, err := r.Decoded()
		if err != nil {
			return nil, err
		}
		changes = append(changes, store.Change{Key: r.Key, Object: decode(o)})
	}
	return changes, nil
}

func (m *mirror) Apply(b store.Batch) error {
	if err := m.durable.Apply(b); err != nil {
		return err
	}
	return m.Collection.Apply(b)
}

func (m *mirror) Describe(d store.Description) error { return m.durable.Describe(d) }

func (m *mirror) Replace() (store.Replacement, error) {
	durable, err := m.durable.Replace()
	if err != nil {
		return nil, err
	}
	inMemory, err := m.Collection.Replace()
	if err != nil {
		return nil, errors.Join(err, durable.Abort())
	}
	return mirroredReplacement{durable, inMemory}, nil
}

type mirroredReplacement struct{ durable, memory store.Replacement }

func (r mirroredReplacement) Apply(changes []store.Change) error {
	if err := r.durable.Apply(changes); err != nil {
		return err
	}
	return r.memory.Apply(changes)
}

func (r mirroredReplacement) Commit(cp store.Checkpoint) error {
	if err := r.durable.Commit(cp); err != nil {
		return err
	}
	return r.memory.Commit(cp)
}

func (r mirroredReplacement) Abort() error { return errors.Join(r.durable.Abort(), r.memory.Abort()) }
