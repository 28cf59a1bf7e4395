package deltafifo

import (
	"context"

	"k8s.io/client-go/tools/cache"
)

// KeyDeltas is what happened to one key, oldest first.
type KeyDeltas struct {
	Key    string
	Deltas cache.Deltas

	// Arrived is the position of each delta in the order in which all deltas of the
	// queue arrived.
	Arrived []uint64
}

// Batch is what a consumer takes at once.
type Batch struct {
	Deltas []KeyDeltas

	// Watermark is the resourceVersion up to which nothing is pending once this
	// batch is applied. It is empty in the batches of a list before the last.
	Watermark string

	// Events and Bookmarks are how many of each the batch covers.
	Events, Bookmarks int

	// Skipped is set if the producer left out events. See [Queue.Skip].
	Skipped bool

	// Flush says that all of this is to be made durable now. See [Queue.Flush].
	Flush bool

	// List says that the batch is part of a list, ListDone that it is the last
	// part, ListAborted that what came of the list must be forgotten.
	List, ListDone, ListAborted bool

	// Repeated is set in the last part of a list that named a key more than once. The
	// newest delta of a key is the one that counts; a Deleted may be of a key that only
	// an earlier part of the list had.
	Repeated bool

	// Replace describes the list, where List is set.
	Replace Replace
}

// PopBatch waits for something to do and returns all of it, so every delta of a batch
// arrived before every delta of the next one. Coming back for the next batch says that
// the previous one is done. After Close it returns what is left and then ErrClosed; with
// ctx it ends early.
func (q *Queue) PopBatch(ctx context.Context) (Batch, error) { return q.pop(ctx, 0) }

// pop is PopBatch with a limit on the number of keys; 0 is none.
func (q *Queue) pop(ctx context.Context, limit int) (Batch, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next(ctx, limit)
}

// next is pop for callers who hold the lock.
func (q *Queue) next(ctx context.Context, limit int) (Batch, error) {
	q.finish()
	for {
		switch {
		case ctx.Err() != nil:
			return Batch{}, ctx.Err()
		case q.ready():
			return q.take(limit), nil
		case q.closed:
			return Batch{}, ErrClosed
		}
		q.waitLinger(ctx)
	}
}

// finish notes that the consumer is done with the newest batch. The caller holds
// the lock.
func (q *Queue) finish() {
	if !q.taken {
		return
	}
	q.left = max(0, q.left-len(q.inFlight))
	q.taken, q.inFlight = false, nil
	if q.listing && q.replace == nil {
		q.listing = false
		if q.ended {
			q.populate(0)
		}
	}
	q.check()
	q.changed.Broadcast()
}

// ready says that a batch may be taken now.
func (q *Queue) ready() bool {
	if q.replace != nil && q.replace.phase != phaseItems {
		return true
	}
	if q.flush && q.replace == nil {
		return true
	}
	if len(q.order) == 0 && q.rv == q.popped {
		return false
	}
	if q.closed || q.hurry || q.bytes >= q.opts.MaxBytes/2 {
		return len(q.order) > 0 || q.replace == nil
	}
	return q.opts.Clock.Since(q.since) >= q.opts.Linger
}

// waitLinger waits for a change, for ctx, or for what is pending to have waited
// long enough.
func (q *Queue) waitLinger(ctx context.Context) {
	if len(q.order) > 0 || q.rv != q.popped {
		timer := q.opts.Clock.AfterFunc(q.opts.Linger-q.opts.Clock.Since(q.since), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.changed.Broadcast()
		})
		defer timer.Stop()
	}
	q.wait(ctx)
}

// take makes the batch. The caller holds the lock.
func (q *Queue) take(limit int) Batch {
	q.taken, q.inFlight = true, map[string]struct{}{}
	q.changed.Broadcast() // there is room
	n := len(q.order)
	if limit > 0 && limit < n {
		n = limit
	}
	b := Batch{Events: q.events, Bookmarks: q.marks}
	q.events, q.marks = 0, 0
	for _, key := range q.order[:n] {
		it := q.items[key]
		b.Deltas = append(b.Deltas, KeyDeltas{Key: key, Deltas: it.deltas, Arrived: it.arrived})
		q.bytes -= it.bytes
		delete(q.items, key)
		q.inFlight[key] = struct{}{}
	}
	q.order = append(q.order[:0:0], q.order[n:]...)
	if q.replace != nil {
		q.takeList(&b)
		return b
	}
	// What is still pending began to wait at the watermark, so the watch must be
	// able to start there again.
	b.Flush, q.flush = q.flush, false
	b.Skipped, q.skipped = q.skipped, false
	b.Watermark = q.rv
	if len(q.order) > 0 {
		b.Watermark = q.items[q.order[0]].before
	}
	q.popped = b.Watermark
	return b
}

// takeList fills in what a batch says about the list that it is part of.
func (q *Queue) takeList(b *Batch) {
	b.List, b.Replace = true, q.replace.Replace
	q.ended = false
	switch {
	case q.replace.phase == phaseAborted:
		b.ListAborted = true
		q.replace = nil
	case q.replace.phase == phaseDone && len(q.order) == 0:
		b.ListDone, b.Watermark, b.Repeated = true, q.replace.rv, q.replace.repeated
		q.ended, q.skipped = true, false // the list has what was left out before it
		q.rv, q.popped = q.replace.rv, q.replace.rv
		q.replace = nil
	}
}
