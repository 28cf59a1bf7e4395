package deltafifo

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Replace describes a list that goes through the queue.
type Replace struct {
	// Reason is why the list is made, Cluster the identity of the cluster it is from and Schema the
	// form of its objects. The list's batches carry them to the consumer.
	Reason, Cluster, Schema string

	// Force treats items as changed even if the consumer has them under the same UID and
	// resourceVersion. Set it if the consumer's objects were made under other rules, such as
	// another transform.
	Force bool

	// Confirm, if not nil, is called at the end of the list with the keys that are missing in the
	// list and about to be deleted; held is the number of keys that the consumer holds. EndReplace
	// returns its error, and the caller then has to abort the list.
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
	seen  map[string]bool // the keys of the list; false for a key that was dropped since

	// repeated is set when a key of the list came again, or was dropped.
	repeated bool
}

type phase int

const (
	phaseItems   phase = iota // after BeginReplace
	phaseDone                 // after EndReplace, until the last batch is taken
	phaseAborted              // after AbortReplace, until a batch with ListAborted is taken
)

// BeginReplace starts a list. It first waits until the consumer has finished with everything that
// was queued before, so that KnownObjects is up to date. It fails with the error of ctx or with
// ErrClosed.
func (q *Queue) BeginReplace(ctx context.Context, r Replace) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = true
	q.changed.Broadcast()
	for !q.idle() && !q.closed && ctx.Err() == nil {
		q.wait(ctx)
	}
	q.draining = false
	switch {
	case q.closed:
		return ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	q.replace, q.listPending = &replace{Replace: r, seen: map[string]bool{}}, true
	return nil
}

// idle reports whether nothing is pending and the newest batch is done. The caller holds the lock.
func (q *Queue) idle() bool {
	return len(q.order) == 0 && q.replace == nil && q.rv == q.popped && !q.taken
}

// ReplaceItem queues one item of the list. It waits while the budget is used up. If several items
// have the same key, the last one counts.
func (q *Queue) ReplaceItem(obj any) error {
	key, err := KeyOf(obj)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, cache.KeyError{Obj: obj, Err: err})
	}
	uid, rv := identity(obj)
	q.mu.Lock()
	r := q.replace
	if r == nil || r.phase != phaseItems {
		defer q.mu.Unlock()
		if q.closed {
			return ErrClosed
		}
		return fmt.Errorf("item %s: %w", key, ErrReplacing)
	}
	_, again := r.seen[key]
	r.seen[key], r.repeated = true, r.repeated || again
	force, compare := r.Force, r.Compare
	q.mu.Unlock()

	// Not under the lock: KnownObjects reads the store.
	if q.opts.KnownObjects != nil && !force {
		knownUID, knownRV, ok, err := q.opts.KnownObjects.Version(key)
		if err != nil {
			return fmt.Errorf("look up %s: %w", key, err)
		}
		if ok && knownUID == uid && knownRV == rv && rv != "" {
			return nil
		}
		if ok && compare != nil {
			if err := compare(key, Version{knownUID, knownRV}, Version{uid, rv}); err != nil {
				return fmt.Errorf("item %s: %w", key, err)
			}
		}
	}
	if obj, err = q.transform(obj); err != nil {
		return fmt.Errorf("item %s: %w", key, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.push(key, cache.Delta{Type: cache.Replaced, Object: obj})
}

// KeepItem records that the list has key with an object that can't be used: the consumer keeps the
// object that it holds. If the list is made under other rules than the consumer's objects
// ([Replace].Force), KeepItem does nothing.
func (q *Queue) KeepItem(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.replace; r != nil && r.phase == phaseItems && !r.Force {
		r.seen[key] = true
	}
}

// DropItem removes key from the list, if the list has it, because the object was deleted while the
// list was being made. At the end of the list the consumer does not have the object, even if it
// held it before.
func (q *Queue) DropItem(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.replace; r != nil && r.phase == phaseItems {
		if _, named := r.seen[key]; named {
			r.seen[key], r.repeated = false, true
		}
	}
}

// EndReplace completes the list, whose resourceVersion is rv: it queues a delete for each key that
// the consumer holds and that is missing in the list.
func (q *Queue) EndReplace(rv string) error {
	q.mu.Lock()
	r := q.replace
	if r == nil || r.phase != phaseItems {
		defer q.mu.Unlock()
		if q.closed {
			return ErrClosed
		}
		return fmt.Errorf("end of list: %w", ErrReplacing)
	}
	q.mu.Unlock()

	// Without the lock: only the producer uses seen, and KnownObjects reads the store.
	var missing []string
	if q.opts.KnownObjects != nil {
		keys, err := q.opts.KnownObjects.Keys()
		if err != nil {
			return fmt.Errorf("keys of the store: %w", err)
		}
		for _, key := range keys {
			if !r.seen[key] {
				missing = append(missing, key)
				delete(r.seen, key)
			}
		}
		if r.Confirm != nil {
			if err := r.Confirm(len(keys), missing); err != nil {
				return err
			}
		}
	}
	if r.repeated {
		// The consumer may have taken a dropped key in an earlier part of this list.
		for key, listed := range r.seen {
			if !listed {
				missing = append(missing, key)
			}
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range missing {
		if err := q.push(key, cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: key}}); err != nil {
			return err
		}
	}
	if q.closed {
		return ErrClosed
	}
	r.phase, r.rv, r.seen = phaseDone, rv, nil
	q.changed.Broadcast()
	return nil
}

// AbortReplace drops an unfinished list; a batch with ListAborted makes the consumer do the same.
func (q *Queue) AbortReplace() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.replace != nil && q.replace.phase == phaseItems {
		q.abort()
	}
}

func (q *Queue) abort() {
	q.replace.phase = phaseAborted
	q.items, q.order, q.bytes = map[string]*item{}, nil, 0
	q.changed.Broadcast()
}
