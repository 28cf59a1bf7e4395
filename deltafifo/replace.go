package deltafifo

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// Replace describes a list that goes through the queue.
type Replace struct {
	Reason, Cluster, Schema string // why it is made, of which cluster and in which form; for the consumer

	// Force treats items as changed even if the consumer has them under the same UID and
	// resourceVersion, because its objects were made under other rules, such as another transform.
	Force bool

	// Confirm, if not nil, is called at the end of the list with the keys that are about to be
	// deleted; held is the number of keys that the consumer holds. EndReplace returns its error, and
	// the caller then has to abort the list.
	Confirm func(held int, missing []string) error

	// Compare, if not nil and Force is not set, is called with both versions of each item that the
	// consumer holds under another version. ReplaceItem returns its error.
	Compare func(key string, held, item Version) error
}

// Version identifies one state of one object.
type Version struct{ UID, RV string }

// replace is the list that is in the queue.
type replace struct {
	Replace
	phase phase
	rv    string

	repeated bool // a key of the list may have come again, or was dropped; set by EndReplace
}

type phase int

const (
	phaseItems   phase = iota // after BeginReplace
	phaseDone                 // after EndReplace, until the last batch is taken
	phaseAborted              // after AbortReplace, until a batch with ListAborted is taken
)

// BeginReplace starts a list. It first waits until the consumer has finished with everything that
// was queued before, so that KnownObjects is up to date.
func (q *Queue) BeginReplace(ctx context.Context, r Replace) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.idleLocked() && !q.closed && ctx.Err() == nil {
		q.waitLocked(ctx)
	}
	switch {
	case q.closed:
		return ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	q.replace, q.listed, q.listPending = &replace{Replace: r}, newListed(q.opts.KnownObjects), true
	return nil
}

// idleLocked reports whether nothing is pending and the newest batch is done.
func (q *Queue) idleLocked() bool { return !q.waitingLocked() && q.replace == nil && !q.taken }

// openList returns the list that items can be added to. The caller uses it without the lock, because
// KnownObjects reads the store.
func (q *Queue) openList() (*replace, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return nil, ErrClosed
	case q.replace == nil || q.replace.phase != phaseItems:
		return nil, ErrReplacing
	}
	return q.replace, nil
}

// ReplaceItem queues one item of the list. It waits while the budget is used up. If several items
// have the same key, the last one counts.
func (q *Queue) ReplaceItem(obj any) error {
	key, err := KeyOf(obj)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, cache.KeyError{Obj: obj, Err: err})
	}
	uid, rv := identity(obj)
	r, err := q.openList()
	if err != nil {
		return fmt.Errorf("item %s: %w", key, err)
	}
	again, err := q.name(key)
	if err != nil {
		return fmt.Errorf("item %s: %w", key, err)
	}
	var held *Version
	if q.opts.KnownObjects != nil && !r.Force {
		knownUID, knownRV, ok, err := q.opts.KnownObjects.Version(key)
		if err != nil {
			return fmt.Errorf("look up %s: %w", key, err)
		}
		if ok && knownUID == uid && knownRV == rv && rv != "" {
			return nil
		}
		if ok {
			held = &Version{knownUID, knownRV}
		}
		if held != nil && r.Compare != nil {
			if err := r.Compare(key, *held, Version{uid, rv}); err != nil {
				return fmt.Errorf("item %s: %w", key, err)
			}
		}
	}
	if obj, err = q.transform(obj); err != nil {
		return fmt.Errorf("item %s: %w", key, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.pushLocked(key, cache.Delta{Type: cache.Replaced, Object: obj}); err != nil {
		return err
	}
	q.items[key].held, q.items[key].repeated = held, again
	return nil
}

// KeepItem records that the list has key with an object that can't be used: the consumer keeps the
// object that it holds, unless [Replace].Force is set.
func (q *Queue) KeepItem(key string) {
	if r, err := q.openList(); err == nil && !r.Force {
		_, _ = q.name(key) // the end of the list returns the error again
	}
}

// name adds a key to the list, and reports whether it may have been there before.
func (q *Queue) name(key string) (again bool, err error) {
	again, err = q.listed.name(key)
	if err != nil {
		err = fmt.Errorf("keys of the store: %w", err)
	}
	return again, err
}

// Held returns the number of objects that the consumer holds.
func (q *Queue) Held() (int, error) {
	if q.opts.KnownObjects == nil {
		return 0, nil
	}
	held := 0
	for _, err := range q.opts.KnownObjects.Keys() {
		if err != nil {
			return 0, fmt.Errorf("keys of the store: %w", err)
		}
		held++
	}
	return held, nil
}

// KeepVersion reports whether the consumer holds this version of key. If it does, key is an item of the
// list, as after [Queue.ReplaceItem] with that version. It never does if [Replace].Force is set.
func (q *Queue) KeepVersion(key string, v Version) (kept bool, err error) {
	r, err := q.openList()
	if err != nil {
		return false, fmt.Errorf("item %s: %w", key, err)
	}
	if q.opts.KnownObjects == nil || r.Force || v.RV == "" {
		return false, nil
	}
	uid, rv, ok, err := q.opts.KnownObjects.Version(key)
	if err != nil {
		return false, fmt.Errorf("look up %s: %w", key, err)
	}
	if !ok || uid != v.UID || rv != v.RV {
		return false, nil
	}
	if _, err := q.name(key); err != nil {
		return false, fmt.Errorf("item %s: %w", key, err)
	}
	return true, nil
}

// DropItem removes key from the list, if the list has it, because the object was deleted while the
// list was being made. At the end of the list the consumer does not have the object, even if it
// held it before.
func (q *Queue) DropItem(key string) {
	if _, err := q.openList(); err == nil {
		q.listed.drop(key)
	}
}

// EndReplace completes the list, whose resourceVersion is rv: it queues a delete for each key that
// the consumer holds and that is missing in the list.
func (q *Queue) EndReplace(rv string) error {
	r, err := q.openList()
	if err != nil {
		return fmt.Errorf("end of list: %w", err)
	}
	held, missing, dropped, err := q.listed.end()
	if err != nil {
		return fmt.Errorf("keys of the store: %w", err)
	}
	if q.opts.KnownObjects != nil && r.Confirm != nil {
		if err := r.Confirm(held, missing); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// The consumer may hold a dropped key, or have taken it in an earlier part of this list.
	for _, key := range slices.Concat(missing, dropped) {
		if err := q.pushLocked(key, cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: key}}); err != nil {
			return err
		}
	}
	if q.closed {
		return ErrClosed
	}
	r.phase, r.rv, r.repeated, q.listed = phaseDone, rv, q.listed.repeated(), nil
	q.changed.Broadcast()
	return nil
}

// AbortReplace drops an unfinished list; a batch with ListAborted makes the consumer do the same. The
// producer calls it after any error of a list.
func (q *Queue) AbortReplace() {
	if q.listed != nil { // also if Close has ended the list
		q.listed.close()
		q.listed = nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abortLocked()
}

func (q *Queue) abortLocked() {
	if q.replace != nil && q.replace.phase == phaseItems {
		q.replace.phase = phaseAborted
		q.items, q.order, q.bytes = map[string]*item{}, nil, 0
	}
	q.changed.Broadcast()
}
