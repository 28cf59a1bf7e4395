package deltafifo

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Replace describes a list that is about to go through the queue.
type Replace struct {
	// Reason is why the list is made, Cluster whose list it is and Schema the form of
	// its objects. They are handed to the consumer with the list's batches.
	Reason, Cluster, Schema string

	// Force takes items as different even where the consumer has them under the
	// same UID and resourceVersion: what it has was made under other rules.
	Force bool

	// Confirm, where set, is asked at the end whether the keys that the list did not
	// name may be deleted: held is how many keys the consumer holds. Its error is
	// EndReplace's, and leaves the list to be aborted.
	Confirm func(held int, missing []string) error

	// Compare, where set and Force is not, is asked for each item of a key that the
	// consumer holds, with both versions. Its error is ReplaceItem's.
	Compare func(key string, held, item Version) error
}

// Version is which version of which object an item is.
type Version struct{ UID, RV string }

// replace is a list on its way through the queue.
type replace struct {
	Replace
	phase phase
	rv    string
	seen  map[string]bool // keys that the list named; false for those that were dropped since

	// repeated is set when the list named a key again after it was named or dropped.
	repeated bool
}

type phase int

const (
	phaseItems   phase = iota // BeginReplace was called
	phaseDone                 // EndReplace was called, the last batch was not taken
	phaseAborted              // AbortReplace was called, the consumer was not told
)

// BeginReplace starts a list. It first waits until the consumer has finished
// with everything that was queued before, so that Known tells the truth. It ends
// with ctx's error or ErrClosed.
func (q *Queue) BeginReplace(ctx context.Context, r Replace) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hurry = true
	q.changed.Broadcast()
	for !q.idle() && !q.closed && ctx.Err() == nil {
		q.wait(ctx)
	}
	q.hurry = false
	switch {
	case q.closed:
		return ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	q.notice("") // a list is newer than what anybody asked for before
	q.replace, q.listing = &replace{Replace: r, seen: map[string]bool{}}, true
	return nil
}

// idle says that nothing is pending and the consumer has come back for more.
func (q *Queue) idle() bool {
	return len(q.order) == 0 && q.replace == nil && q.rv == q.popped && !q.taken
}

// ReplaceItem takes one item of the list. It waits while the budget is used up. Of several
// items under one key the last one counts.
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

	// Known reads the store: not under the lock.
	if q.opts.Known != nil && !force {
		knownUID, knownRV, ok, err := q.opts.Known.Lookup(key)
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

// KeepItem says that the list has key and that its object can't be used: what the
// consumer holds of it stays. Where the list is made under other rules than what is
// held ([Replace].Force) it does nothing.
func (q *Queue) KeepItem(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.replace; r != nil && r.phase == phaseItems && !r.Force {
		r.seen[key] = true
	}
}

// DropItem takes key out of the list again, if the list has named it: the object was
// deleted while the list was being made. At the end of the list the consumer does not have
// it, even if it had it before.
func (q *Queue) DropItem(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.replace; r != nil && r.phase == phaseItems {
		if _, named := r.seen[key]; named {
			r.seen[key], r.repeated = false, true
		}
	}
}

// EndReplace completes the list, whose resourceVersion is rv: keys that the
// consumer holds and the list did not name are deleted.
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

	// Only the producer touches seen, and Known reads the store: no lock.
	var missing []string
	if q.opts.Known != nil {
		keys, err := q.opts.Known.Keys()
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
		// The consumer may have taken what was dropped since, as a part of this list.
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

// AbortReplace forgets an unfinished list; the consumer is told to do the same.
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
