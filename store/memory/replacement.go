package memory

import (
	"github.com/snapcache/snapcache/store"
)

// replacement changes a copy of the content, which Commit makes the collection's.
type replacement struct {
	c    *collection
	info store.Info // what the collection is a copy of once this is committed

	// The rest belongs to the one goroutine that drives the replacement.
	work   *content
	failed error // why it can't be committed any more
}

var _ store.Replacement = (*replacement)(nil)

// Apply implements [store.Replacement]. After an error the replacement can only
// be aborted.
func (r *replacement) Apply(changes []store.Change) error {
	if err := r.usable(); err != nil {
		return r.c.wrap(err)
	}
	// Not under the collection's lock: a replacement owns its trees.
	if err := r.work.apply(changes); err != nil {
		r.failed = err
		return r.c.wrap(err)
	}
	return nil
}

// Commit implements [store.Replacement].
func (r *replacement) Commit(cp store.Checkpoint) error {
	if err := r.usable(); err != nil {
		return r.c.wrap(err)
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.c.repl != r { // dropped meanwhile
		return r.c.wrap(store.ErrNoCollection)
	}
	r.c.install(r.work, snapshot{info: r.info, state: store.State{Checkpoint: cp, Synced: true}})
	r.c.db.commits.Add(1)
	r.end()
	return nil
}

// Abort implements [store.Replacement].
func (r *replacement) Abort() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.end()
	return nil
}

// end lets another writer in. The caller holds c.mu.
func (r *replacement) end() {
	if r.c.repl == r {
		r.c.repl = nil
	}
	r.work, r.failed = nil, errEnded
}

// usable says why no more can be done with the replacement than to abort it.
func (r *replacement) usable() error {
	if r.failed != nil {
		return r.failed
	}
	return r.c.db.checkOpen()
}
