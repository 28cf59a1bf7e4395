package memory

import (
	"maps"
	"slices"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/internal/history"
)

// replacement changes a copy of the content, which Commit makes the collection's.
type replacement struct {
	c    *collection
	info *store.Info // what the collection is a copy of once this is committed

	// The rest belongs to the one goroutine that drives the replacement.
	work    *content
	stored  map[string]*filed // by key, when this began; no other change is made until it ends
	touched map[string]touch
	highest string // resourceVersion of any object that was brought
	failed  error  // why it can't be committed any more
}

// touch is what a replacement makes of a key.
type touch struct {
	*filed        // where it will be, or was
	is     filed  // its object is nil where there will be none
	rv     string // of its deletion, if one was told
}

var _ store.Replacement = (*replacement)(nil)

// Apply implements [store.Replacement]. After an error the replacement can only
// be aborted.
func (r *replacement) Apply(changes []store.Change) error {
	if err := r.usable(); err != nil {
		return r.c.wrap(err)
	}
	if err := check(changes); err != nil {
		r.failed = err
		return r.c.wrap(err)
	}
	// Not under the collection's lock: a replacement owns its content.
	for _, ch := range changes {
		change := refiling{filed: r.stored[ch.Key], is: r.work.filed(ch)}
		before, again := r.touched[ch.Key]
		if again && before.is.object == nil {
			change.filed = nil
		} else if again {
			change.filed = before.filed
		}
		if change.begin(); again {
			change.was = before.is
		}
		r.work.apply(&change)
		r.touched[change.is.key] = touch{change.filed, change.is, ch.RV}
		if ch.Object != nil {
			r.highest = history.Higher(r.highest, ch.Object.GetResourceVersion())
		}
	}
	return nil
}

// Commit implements [store.Replacement].
func (r *replacement) Commit(cp store.Checkpoint) error {
	if err := r.usable(); err != nil {
		return r.c.wrap(err)
	}
	objects := r.objects()
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.c.repl != r { // dropped meanwhile
		return r.c.wrap(store.ErrNoCollection)
	}
	if err := r.record(cp); err != nil {
		return r.c.wrap(err)
	}
	r.c.hot.Lock()
	defer r.c.hot.Unlock()
	r.file()
	r.c.install(r.work, head{info: r.info, state: store.State{Checkpoint: cp, Synced: true}}, objects)
	r.c.db.commits.Add(1)
	r.end()
	return nil
}

// objects returns what there will be by key.
func (r *replacement) objects() map[string]*filed {
	objects := make(map[string]*filed, r.work.objects.count)
	maps.Copy(objects, r.stored)
	for key, t := range r.touched {
		if t.is.object == nil {
			delete(objects, key)
		} else {
			objects[t.key] = t.filed
		}
	}
	return objects
}

// file puts what was brought where it will be. The caller holds c.hot: readers of the state
// before look there too.
func (r *replacement) file() {
	for _, t := range r.touched {
		if t.is.object != nil {
			t.set(&t.is)
		}
	}
}

// record takes the difference into the history, or begins it anew. The caller holds
// c.mu.
func (r *replacement) record(cp store.Checkpoint) error {
	if r.c.db.forgetful {
		return nil
	}
	stored := r.c.publish()
	if stored.info.Scope() != r.info.Scope() || !store.ContinuesHistory(stored.state, cp) || !stored.feed.head.Recording() {
		r.work.feed = newFeed(history.Begin(cp.RV, r.highest, cp.Proven()))
		return nil
	}
	var changes []store.Change
	var before []*object.Object
	for _, key := range slices.Sorted(maps.Keys(r.touched)) {
		now := r.touched[key]
		changes = append(changes, store.Change{Key: key, Object: now.is.object, RV: now.rv})
		var was *object.Object
		if f := r.stored[key]; f != nil {
			was = f.object
		}
		before = append(before, was)
	}
	return r.work.feed.record(changes, before, stored.state.RV, cp)
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
	r.work, r.stored, r.touched, r.failed = nil, nil, nil, errEnded
}

// usable says why no more can be done with the replacement than to abort it.
func (r *replacement) usable() error {
	if r.failed != nil {
		return r.failed
	}
	return r.c.db.checkOpen()
}
