package memory

import (
	"errors"

	"github.com/snapcache/snapcache/store"
)

// replacement makes changes in a draft, which Commit installs. The collection takes no other change
// until it ends.
type replacement struct {
	c    *Collection
	info *store.Info // the collection's Info after Commit

	// The fields below are owned by the one goroutine that uses the replacement.
	draft  *content
	failed error // why it can only be aborted; nil if it can be used
}

var _ store.Replacement = (*replacement)(nil)

// Apply implements [store.Replacement]. After an error the replacement can only be aborted.
func (r *replacement) Apply(changes []store.Change) error {
	if err := r.usable(); err != nil {
		return r.c.wrap(err)
	}
	prepared, err := r.draft.prepare(changes, nil)
	if err != nil {
		r.failed = err
		return r.c.wrap(err)
	}
	for i := range prepared {
		r.draft.set(&prepared[i])
	}
	return nil
}

// Commit implements [store.Replacement].
func (r *replacement) Commit(cp store.Checkpoint) error {
	if err := r.usable(); err != nil {
		return r.c.wrap(err)
	}
	r.c.writer.Lock()
	defer r.c.writer.Unlock()
	if r.c.repl != r { // the collection was dropped meanwhile
		return r.c.wrap(store.ErrNoCollection)
	}
	r.draft.info, r.draft.state.Checkpoint, r.draft.state.Synced = r.info, cp, true
	r.c.installLocked(r.draft)
	r.c.db.commits.Add(1)
	r.endLocked()
	return nil
}

// Abort implements [store.Replacement].
func (r *replacement) Abort() error {
	r.c.writer.Lock()
	defer r.c.writer.Unlock()
	r.endLocked()
	return nil
}

// endLocked makes the collection writable again.
func (r *replacement) endLocked() {
	if r.c.repl == r {
		r.c.repl = nil
	}
	r.draft, r.failed = nil, errEnded
}

// errEnded means that a replacement was already committed or aborted.
var errEnded = errors.New("replacement has ended")

// usable returns an error if the replacement can only be aborted.
func (r *replacement) usable() error {
	if r.failed != nil {
		return r.failed
	}
	if r.c.db.closed.Load() {
		return store.ErrClosed
	}
	return r.c.owner.Err()
}
