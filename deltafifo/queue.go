package deltafifo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
)

var (
	// ErrClosed is returned once the queue is closed.
	ErrClosed = errors.New("queue is closed")

	// ErrReplacing is returned for a watch event between BeginReplace and EndReplace, and for an
	// item outside of them.
	ErrReplacing = errors.New("out of order with a replace")

	// ErrUnusable is returned for an object that has no key or that the transformer refused.
	ErrUnusable = errors.New("object can't be queued")

	// ErrChanged is returned for a correction that may be older than events that the queue has got since,
	// or that the queue has no space for. The caller has to fetch the server's state again.
	ErrChanged = errors.New("changed meanwhile")
)

// Corrected is the type of the delta that [Queue.Correct] queues.
const Corrected cache.DeltaType = "Corrected"

// DefaultMaxBytes is the budget of a queue whose Options have none.
const DefaultMaxBytes = 4 << 20

// Options are the settings of a queue.
type Options struct {
	// KnownObjects is the consumer's content; nil for none.
	KnownObjects KnownObjects

	// Transformer is applied to each object before it is queued, except to a
	// cache.DeletedFinalStateUnknown; nil for none. It must keep name, UID and resourceVersion.
	Transformer cache.TransformFunc

	// MaxBytes is the budget for queued objects. A producer blocks while it is used up; an object
	// larger than the budget passes alone. 0 is DefaultMaxBytes.
	MaxBytes int64
}

// KnownObjects is the content of a queue's consumer. It must include each delta that the consumer
// has finished with.
type KnownObjects interface {
	// Version returns the UID and resourceVersion of the object that the consumer holds under key;
	// ok is false if there is none.
	Version(key string) (uid, rv string, ok bool, err error)

	// Keys iterates over all keys that the consumer holds, in order, until an error. Changes meanwhile may
	// be missed.
	Keys() iter.Seq2[string, error]
}

// Queue orders deltas by key between a producer and a consumer. All methods are safe for concurrent
// use; one goroutine at a time may make a list, and one take batches.
type Queue struct {
	opts Options

	mu          sync.Mutex
	changed     *sync.Cond // signals a change of any field below
	items       map[string]*item
	order       []string // keys of items, by first delta
	bytes       int64
	rv          string // newest resourceVersion that was queued
	popped      string // watermark of the newest batch
	events      int    // watch events since the newest batch
	bookmarks   int    // bookmarks since the newest batch
	closed      bool
	replace     *replace
	listPending bool // a list is in the queue or still with the consumer
	skipped     bool // an event was left out since the newest batch or list
	flush       bool // the consumer has to make its content durable

	listed *listed // keys of the newest list; only the producer uses it, without the lock

	taken  bool   // the consumer has the newest batch
	pushes uint64 // deltas queued so far
}

// item holds the pending deltas of one key.
type item struct {
	deltas  cache.Deltas
	arrived []uint64 // the value of pushes at each delta
	before  string   // newest resourceVersion when the key was first queued
	held    *Version // see KeyDeltas

	repeated bool // see KeyDeltas
	bytes    int64
}

// New returns an empty queue.
func New(opts Options) *Queue {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	q := &Queue{opts: opts, items: map[string]*item{}}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// Start sets the resourceVersion of the consumer's content, in an empty queue.
func (q *Queue) Start(rv string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rv, q.popped = rv, rv
}

// Add queues an ADDED event. It waits while the budget is used up.
func (q *Queue) Add(obj any) error { return q.event(cache.Added, obj, nil) }

// Update queues a MODIFIED event. It waits while the budget is used up.
func (q *Queue) Update(obj any) error { return q.event(cache.Updated, obj, nil) }

// Delete queues a DELETED event. It waits while the budget is used up.
func (q *Queue) Delete(obj any) error { return q.event(cache.Deleted, obj, nil) }

// event queues an event. If skipLocked is not nil and returns true, only the resourceVersion is used.
func (q *Queue) event(t cache.DeltaType, obj any, skipLocked func(t cache.DeltaType, key string) bool) error {
	key, err := KeyOf(obj)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, cache.KeyError{Obj: obj, Err: err})
	}
	_, rv := identity(obj)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.afterReplaceLocked(); err != nil {
		return fmt.Errorf("%s %s: %w", t, key, err)
	}
	if skipLocked == nil || !skipLocked(t, key) {
		if obj, err = q.transform(obj); err != nil {
			return fmt.Errorf("%s %s: %w", t, key, err)
		}
		if err := q.pushLocked(key, cache.Delta{Type: t, Object: obj}); err != nil {
			return err
		}
	}
	q.events++
	// The ADDED events that begin a watch without a resourceVersion are in no order.
	if rv != "" && (t != cache.Added || isCheckpoint(q.rv)) {
		q.rv = rv
	}
	q.changed.Broadcast()
	return nil
}

// transform applies the transformer to an object. Each object goes through it once.
func (q *Queue) transform(obj any) (any, error) {
	if q.opts.Transformer == nil {
		return obj, nil
	}
	if _, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return obj, nil
	}
	obj, err := q.opts.Transformer(obj)
	if err != nil {
		return nil, fmt.Errorf("%w: transformer: %w", ErrUnusable, err)
	}
	return obj, nil
}

// isCheckpoint reports whether a watch from rv brings exactly the changes after it.
func isCheckpoint(rv string) bool { return rv != "" && rv != "0" }

// Bookmark moves the watermark: everything up to rv has been queued.
func (q *Queue) Bookmark(rv string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.afterReplaceLocked(); err != nil {
		return fmt.Errorf("bookmark %s: %w", rv, err)
	}
	q.rv = rv
	q.bookmarks++
	q.changed.Broadcast()
	return nil
}

// Skip records that the producer left out an unusable event, for [Batch].Skipped: the watermark may be
// past that event.
func (q *Queue) Skip() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.afterReplaceLocked(); err != nil {
		return fmt.Errorf("skip: %w", err)
	}
	q.skipped = true
	return nil
}

// Correct queues the server's state of a key whose object at the consumer is corrupt or different:
// an object, or its absence if o is nil. at is the resourceVersion of the consumer's content before
// the state was read from the server. The consumer can apply it to any stored state: deltas that
// were queued before the correction are older, and later ones follow it. The watermark does not
// move, since the state may be newer than events that are still to come.
//
// Correct never waits. It fails with ErrChanged if anything was queued since at, because that may be
// a newer state of the key, such as a deletion that no later event repeats; also while a list is in
// the queue, and while the budget is used up.
func (q *Queue) Correct(key string, o *object.Object, at string) error {
	d := cache.Delta{Type: Corrected, Object: cache.DeletedFinalStateUnknown{Key: key}}
	if o != nil {
		if o.Key() != key {
			return fmt.Errorf("%s: the object is %s", key, o.Key())
		}
		d.Object = o
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.rv != at, !isCheckpoint(at), q.replace != nil, !q.fitsLocked(cost(key, d)):
		return fmt.Errorf("%s: %w", key, ErrChanged)
	}
	q.putLocked(key, d)
	return nil
}

// afterReplaceLocked waits until the consumer has taken the whole of a list that has ended, so that later
// events are not taken as part of it.
func (q *Queue) afterReplaceLocked() error {
	for q.replace != nil && !q.closed {
		if q.replace.phase == phaseItems {
			return ErrReplacing
		}
		q.changed.Wait()
	}
	if q.closed {
		return ErrClosed
	}
	return nil
}

// Flush requests that the consumer make its content durable once it has taken the queued deltas,
// because the next event may be far off.
func (q *Queue) Flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flush = true
	q.changed.Broadcast()
}

// pushLocked appends a delta once the budget allows it, or fails with ErrClosed.
func (q *Queue) pushLocked(key string, d cache.Delta) error {
	size := cost(key, d)
	for !q.closed && !q.fitsLocked(size) {
		q.changed.Wait()
	}
	if q.closed {
		return ErrClosed
	}
	q.putLocked(key, d)
	return nil
}

// putLocked appends a delta even if the budget is used up.
func (q *Queue) putLocked(key string, d cache.Delta) {
	q.pushes++
	it := q.items[key]
	if it == nil {
		it = &item{before: q.rv}
		q.items[key] = it
		q.order = append(q.order, key)
	}
	if merged, ok := mergeDeletes(it.deltas, d); ok {
		it.deltas = merged
	} else {
		it.deltas = append(it.deltas, d)
		it.arrived = append(it.arrived, q.pushes)
	}
	size := cost(key, d)
	it.bytes += size
	q.bytes += size
	q.changed.Broadcast()
}

// fitsLocked reports whether size more bytes are within the budget. An empty queue takes any size.
func (q *Queue) fitsLocked(size int64) bool { return q.bytes == 0 || q.bytes+size <= q.opts.MaxBytes }

// cost returns how many bytes of the budget a delta uses.
func cost(key string, d cache.Delta) int64 {
	size := int64(len(key)) + 64
	if s, ok := d.Object.(interface{ Size() int }); ok {
		size += int64(s.Size())
	}
	return size
}

// mergeDeletes merges d into a delete before it: the first of the two that has the final state is
// kept, as in client-go.
func mergeDeletes(deltas cache.Deltas, d cache.Delta) (cache.Deltas, bool) {
	if len(deltas) == 0 || d.Type != cache.Deleted || deltas[len(deltas)-1].Type != cache.Deleted {
		return nil, false
	}
	if _, unknown := deltas[len(deltas)-1].Object.(cache.DeletedFinalStateUnknown); unknown {
		deltas[len(deltas)-1] = d
	}
	return deltas, true
}

// Close ends the queue: producers get ErrClosed at once, the consumer gets the pending deltas and
// then ErrClosed. An unfinished replace is aborted.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.abortLocked()
}

// ListPending reports whether a list has begun and the consumer has not finished with it.
func (q *Queue) ListPending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.listPending
}

// Len returns the number of keys that are pending.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order)
}

// Bytes returns how many bytes of the budget are used.
func (q *Queue) Bytes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// waitingLocked reports whether a delta or a bookmark is to be taken.
func (q *Queue) waitingLocked() bool { return len(q.order) > 0 || q.rv != q.popped }

// waitLocked blocks until the queue changes or ctx ends.
func (q *Queue) waitLocked(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})
	defer stop()
	if ctx.Err() == nil {
		q.changed.Wait()
	}
}

// KeyOf returns an object's key: for a DeletedFinalStateUnknown the key in it, for Deltas the key
// of the newest delta.
func KeyOf(obj any) (string, error) {
	switch o := obj.(type) {
	case *object.Object:
		return o.Key(), nil
	case cache.Deltas:
		if len(o) == 0 {
			return "", cache.ErrZeroLengthDeltasObject
		}
		return KeyOf(o.Newest().Object)
	}
	return cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
}

// identity returns an object's UID and resourceVersion, each empty if the object has none.
func identity(obj any) (uid, rv string) {
	switch o := obj.(type) {
	case *object.Object:
		return string(o.GetUID()), o.GetResourceVersion()
	case cache.DeletedFinalStateUnknown:
		return "", ""
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", ""
	}
	return string(m.GetUID()), m.GetResourceVersion()
}
