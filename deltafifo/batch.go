package deltafifo

import (
	"context"

	"k8s.io/client-go/tools/cache"
)

// KeyDeltas holds the deltas of one key, oldest first.
type KeyDeltas struct {
	Key    string
	Deltas cache.Deltas

	Arrived []uint64 // position of each delta in the order in which all deltas of the queue arrived

	// Held is the version of a listed item that the consumer held when the queue compared the two, and
	// still holds; nil if it held none, or if the queue did not look.
	Held *Version

	// Repeated is set if the list may have had an item of this key before, perhaps in an earlier batch: its
	// key came after a higher one.
	Repeated bool
}

// Batch is the deltas that a consumer takes at once, and the watermark that it reaches with them.
type Batch struct {
	Deltas []KeyDeltas

	// Watermark is the resourceVersion up to which nothing is pending once this batch is applied. It
	// is empty in the batches of a list before the last.
	Watermark string

	Events, Bookmarks int // how many of each the batch covers

	Skipped bool // the producer left out events, see [Queue.Skip]

	Flush bool // the consumer has to make this batch, and all before it, durable now, see [Queue.Flush]

	// List is set if the batch is part of a list, ListDone if it is the last part, ListAborted if
	// the consumer has to drop the parts of the list that it has.
	List, ListDone, ListAborted bool

	// Repeated is set in the last part of a list that may have had a key more than once. The newest delta of
	// a key counts; a Deleted may be for a key that only an earlier part of the list had.
	Repeated bool

	Replace Replace // describes the list, if List is set
}

// PopBatch blocks until something is pending and returns all of it, so every delta of a batch
// arrived before every delta of the next one. The next call marks the previous batch as done. After
// Close it returns the pending deltas and then ErrClosed; when ctx ends it returns the error of
// ctx.
func (q *Queue) PopBatch(ctx context.Context) (Batch, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.nextLocked(ctx, 0)
}

// nextLocked is PopBatch with a limit on the number of keys; 0 is none.
func (q *Queue) nextLocked(ctx context.Context, limit int) (Batch, error) {
	q.finishLocked()
	for {
		switch {
		case ctx.Err() != nil:
			return Batch{}, ctx.Err()
		case q.readyLocked():
			return q.takeLocked(limit), nil
		case q.closed:
			return Batch{}, ErrClosed
		}
		q.waitLocked(ctx)
	}
}

// finishLocked marks the newest batch as done.
func (q *Queue) finishLocked() {
	if !q.taken {
		return
	}
	q.taken, q.listPending = false, q.listPending && q.replace != nil
	q.changed.Broadcast()
}

func (q *Queue) readyLocked() bool {
	return q.waitingLocked() || q.replace != nil && q.replace.phase != phaseItems || q.flush && q.replace == nil
}

// takeLocked removes a batch of at most limit keys from the queue; 0 is no limit.
func (q *Queue) takeLocked(limit int) Batch {
	q.taken = true
	q.changed.Broadcast() // wakes a producer that waits for the budget
	n := len(q.order)
	if limit > 0 && limit < n {
		n = limit
	}
	b := Batch{Events: q.events, Bookmarks: q.bookmarks}
	q.events, q.bookmarks = 0, 0
	for _, key := range q.order[:n] {
		it := q.items[key]
		b.Deltas = append(b.Deltas, KeyDeltas{Key: key, Deltas: it.deltas, Arrived: it.arrived, Held: it.held, Repeated: it.repeated})
		q.bytes -= it.bytes
		delete(q.items, key)
	}
	q.order = append(q.order[:0:0], q.order[n:]...)
	if q.replace != nil {
		q.takeListLocked(&b)
		return b
	}
	// The watermark is the version at which the oldest pending key was queued, so a watch from
	// there replays everything that is pending.
	b.Flush, q.flush = q.flush, false
	b.Skipped, q.skipped = q.skipped, false
	b.Watermark = q.rv
	if len(q.order) > 0 {
		b.Watermark = q.items[q.order[0]].before
	}
	q.popped = b.Watermark
	return b
}

// takeListLocked sets the fields of a batch that is part of a list.
func (q *Queue) takeListLocked(b *Batch) {
	b.List, b.Replace = true, q.replace.Replace
	switch {
	case q.replace.phase == phaseAborted:
		b.ListAborted = true
		q.replace = nil
	case q.replace.phase == phaseDone && len(q.order) == 0:
		b.ListDone, b.Watermark, b.Repeated = true, q.replace.rv, q.replace.repeated
		q.skipped = false // the list includes the skipped events
		q.rv, q.popped = q.replace.rv, q.replace.rv
		q.replace = nil
	}
}
