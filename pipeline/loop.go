package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// LoopOptions are the settings of a loop. Queue and Collection are needed.
type LoopOptions struct {
	Queue      *deltafifo.Queue
	Collection store.Collection

	// Flush makes the collection durable when a batch requests it; nil if that is not needed. Its
	// error is only logged: the store reports it and retries.
	Flush func() error

	// Sinks get the changes. The first has finished its Commit before the later ones begin.
	Sinks []Sink

	// StoreFailed reports that the store refused a batch, which the loop retries; nil means that the
	// store works again. It must not block, and may be nil.
	StoreFailed func(error)

	// Replaced is called when a list becomes visible that was made under other rules, so that the
	// same UID and resourceVersion may stand for another object. The handlers get the list
	// afterwards. May be nil.
	Replaced func()

	// Around, if not nil, is called for each batch and has to call apply, which handles the batch.
	Around func(b deltafifo.Batch, apply func() error) error

	// Unversioned reports whether an object may change without getting another resourceVersion, as
	// with fake clients: see reflector.ListWatch. Nil means never.
	Unversioned func() bool

	Logger *slog.Logger     // nil discards
	Clock  clock.WithTicker // nil is the real one
}

// Loop takes batches from a queue into a collection. Run it once; it is the
// collection's only writer.
type Loop struct {
	opts       LoopOptions
	checkpoint store.Checkpoint
	newest     newest
	list       *list // the list in progress; nil for none
	wanted     bool  // a sink wants the transitions of the current batch
}

// list is a list that is not yet complete in the store.
type list struct {
	replacement store.Replacement
	newest      newest
	transitions []store.Transition // in the list's order, without a type for a key that it has removed again
	counts      store.Counts
}

// NewLoop returns a loop that has not started.
func NewLoop(opts LoopOptions) *Loop {
	opts.Clock = cmp.Or[clock.WithTicker](opts.Clock, clock.RealClock{})
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	if opts.StoreFailed == nil {
		opts.StoreFailed = func(error) {}
	}
	if opts.Around == nil {
		opts.Around = func(_ deltafifo.Batch, apply func() error) error { return apply() }
	}
	return &Loop{opts: opts, checkpoint: opts.Collection.State().Checkpoint, newest: newestOf(opts.Collection)}
}

// Run applies batches until the queue is closed and empty, then returns nil. When ctx ends it stops
// at once; the next watch replays the changes that were not applied.
func (l *Loop) Run(ctx context.Context) error {
	defer l.abort()
	// The sinks may have missed earlier changes.
	if err := l.commit(ctx, store.Changeset{RV: l.checkpoint.RV}, func() error { return nil }); err != nil {
		return err
	}
	for {
		b, err := l.opts.Queue.PopBatch(ctx)
		if errors.Is(err, deltafifo.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := l.opts.Around(b, func() error { return l.apply(ctx, b) }); err != nil {
			return err
		}
	}
}

// apply puts one batch into the store and hands its changes to the sinks.
func (l *Loop) apply(ctx context.Context, b deltafifo.Batch) error {
	if b.ListAborted {
		l.abort()
		return nil
	}
	start := l.opts.Clock.Now()
	if !b.List {
		defer l.flush(b)
		if len(b.Deltas) == 0 && l.after(b) == l.checkpoint {
			return nil // the batch only requests a flush
		}
	}
	l.wanted = false
	for _, s := range l.opts.Sinks {
		l.wanted = s.Wanted(b.List) || l.wanted
	}
	var diff difference
	err := l.retry(ctx, func() (err error) {
		diff, err = l.difference(b)
		return err
	})
	switch {
	case err != nil:
		return err
	case b.List:
		return l.applyList(ctx, b, diff, start)
	}
	return l.applyEvents(ctx, b, diff, start)
}

// flush makes the collection durable if the batch requests it.
func (l *Loop) flush(b deltafifo.Batch) {
	if !b.Flush || l.opts.Flush == nil {
		return
	}
	if err := l.opts.Flush(); err != nil {
		l.opts.Logger.Warn("could not flush", "error", err)
	}
}

// after returns the checkpoint after a batch of events, without its times.
func (l *Loop) after(b deltafifo.Batch) store.Checkpoint {
	cp := l.checkpoint
	cp.RV = b.Watermark
	cp.Skipped = cp.Skipped || b.Skipped
	return cp
}

// applyEvents puts a batch of events into the store.
func (l *Loop) applyEvents(ctx context.Context, b deltafifo.Batch, diff difference, start time.Time) error {
	cp, changed := l.after(b), len(diff.changes) > 0
	c := store.Changeset{
		Transitions: diff.transitions(), RV: cp.RV, Counts: diff.counts, Began: start,
		Complete:  !b.Skipped && !diff.unknown && (l.wanted || b.Events == 0 && !changed),
		Unordered: diff.corrected || changed && cp.RV == l.checkpoint.RV,
	}
	if cp == l.checkpoint && !changed {
		c.Began = time.Time{}
		return l.commit(ctx, c, func() error { return nil }) // the sinks wait for it
	}
	newest := l.newest.after(diff.changes)
	cp.Newest = newest.keys()
	if b.Events > 0 {
		cp.LastEvent = start.UTC()
	}
	if b.Bookmarks > 0 {
		cp.LastBookmark = start.UTC()
	}
	if b.Events+b.Bookmarks > 0 {
		cp.NoneAfter(start)
	}
	if b.Skipped {
		diff.gap = &store.Gap{}
	}
	err := l.commit(ctx, c, func() error {
		return l.opts.Collection.Apply(store.Batch{Changes: diff.changes, Checkpoint: cp, Gap: diff.gap, Read: diff.read})
	})
	if err == nil {
		l.checkpoint, l.newest = cp, newest
	}
	return err
}

// applyList puts one part of a list into the store. Readers and handlers see none of it before the
// last part.
func (l *Loop) applyList(ctx context.Context, b deltafifo.Batch, diff difference, start time.Time) error {
	if l.list == nil {
		r, err := l.opts.Collection.Replace()
		if err != nil {
			return err
		}
		l.list = &list{replacement: r}
		if !b.Replace.Force {
			// The unchanged objects are not in the list's batches.
			l.list.newest = l.newest
		}
	}
	if err := l.retry(ctx, func() error { return l.list.replacement.Apply(diff.changes) }); err != nil {
		return err
	}
	l.list.newest = l.list.newest.after(diff.changes).after(diff.same)
	l.list.transitions = append(l.list.transitions, diff.transitions()...)
	l.list.counts.Add(diff.counts)
	if !b.ListDone {
		return nil
	}
	if b.Repeated {
		l.list.settle()
	}
	cp := store.Checkpoint{
		RV: b.Watermark, Cluster: b.Replace.Cluster, Schema: b.Replace.Schema, ListReason: store.Reason(b.Replace.Reason),
		LastList: start.UTC(), LastEvent: l.checkpoint.LastEvent, LastBookmark: l.checkpoint.LastBookmark,
		Newest: l.list.newest.keys(),
	}
	cp.NoneAfter(start)
	c := store.Changeset{
		Transitions: l.list.sorted(), List: true, RV: cp.RV, Counts: l.list.counts, Began: start,
		Unordered: cp.RV == l.checkpoint.RV && l.list.counts.Changed() > 0,
	}
	err := l.commit(ctx, c, func() error {
		if err := l.list.replacement.Commit(cp); err != nil {
			return err
		}
		if b.Replace.Force && l.opts.Replaced != nil {
			l.opts.Replaced()
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.checkpoint, l.newest = cp, l.list.newest
	l.list = nil
	return nil
}

// sorted returns the deletions of a list, ordered by key, and then the other transitions in the list's
// order.
func (l *list) sorted() []store.Transition {
	l.transitions = slices.DeleteFunc(l.transitions, func(t store.Transition) bool { return t.Type == "" })
	slices.SortStableFunc(l.transitions, func(a, b store.Transition) int {
		aDeleted, bDeleted := a.Type == store.Deleted, b.Type == store.Deleted
		switch {
		case aDeleted && bDeleted:
			return strings.Compare(a.Key, b.Key)
		case aDeleted:
			return -1
		case bDeleted:
			return 1
		}
		return 0
	})
	return l.transitions
}

// settle keeps only the newest transition of each key of a list that has keys more than once, and
// counts each change once.
func (l *list) settle() {
	newest := make(map[string]int, len(l.transitions))
	for i, t := range l.transitions {
		newest[t.Key] = i
	}
	kept := l.transitions[:0]
	for i, t := range l.transitions {
		switch {
		case newest[t.Key] == i:
			kept = append(kept, t)
		case t.Type == store.Added:
			l.counts.Added--
		case t.Type == store.Modified:
			l.counts.Updated--
		}
	}
	clear(l.transitions[len(kept):])
	l.transitions = kept
}

func (l *Loop) abort() {
	if l.list == nil {
		return
	}
	if err := l.list.replacement.Abort(); err != nil {
		l.opts.Logger.Warn("what a failed list left on disk stays until the next start", "error", err)
	}
	l.list = nil
}

// storeBackoff is the wait between two tries of a change that the store refuses.
var storeBackoff = sleep.Backoff(100*time.Millisecond, 30*time.Second, 0.2)

// retry calls fn until it succeeds or ctx ends. A closed store or a dropped collection ends it too:
// only the owner of the loop closes the store.
func (l *Loop) retry(ctx context.Context, fn func() error) error {
	backoff := storeBackoff
	failed := false
	for {
		err := fn()
		if err == nil || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrNoCollection) {
			if failed && err == nil {
				l.opts.Logger.Info("the store works again")
				l.opts.StoreFailed(nil)
			}
			return err
		}
		failed = true
		d := backoff.Step()
		l.opts.Logger.Error("the store refuses changes; they are kept and retried",
			"wait", d.Round(time.Millisecond), "error", err)
		l.opts.StoreFailed(err)
		if ended := sleep.For(ctx, l.opts.Clock, d); ended != nil {
			return fmt.Errorf("%w (the store's last error: %w)", ended, err)
		}
	}
}

// commit makes changes visible with apply, inside of the sinks' Commit, with retries.
func (l *Loop) commit(ctx context.Context, c store.Changeset, apply func() error) error {
	for _, s := range l.opts.Sinks {
		inner := apply
		apply = func() error { return s.Commit(c, inner) }
	}
	return l.retry(ctx, apply)
}

// newest holds the objects with the highest resourceVersions in a collection, highest first, for
// [store.Checkpoint.Newest]. After a deletion it has one object less until the next change.
type newest []ranked

type ranked struct{ key, rv string }

// newestOf returns the objects that a collection's checkpoint names.
func newestOf(c store.Collection) newest {
	v, err := c.View()
	if err != nil {
		return nil // the next read returns the error
	}
	defer v.Close()
	var n newest
	for _, key := range v.State().Newest {
		if key == "" {
			continue
		}
		if h, err := v.Header(key); err == nil {
			n.put(key, h.RV)
		}
	}
	return n
}

// after returns the newest objects once changes are applied.
func (n newest) after(changes []store.Change) newest {
	n = slices.Clone(n)
	for _, ch := range changes {
		n = slices.DeleteFunc(n, func(v ranked) bool { return v.key == ch.Key })
		if ch.Object != nil {
			n.put(ch.Key, ch.Object.GetResourceVersion())
		}
	}
	return n
}

// put inserts a key that n does not have. If its resourceVersion can't be compared, it counts as
// newer, since it came later.
func (n *newest) put(key, rv string) {
	at := slices.IndexFunc(*n, func(v ranked) bool {
		order, ok := object.CompareRV(rv, v.rv)
		return !ok || order > 0
	})
	switch {
	case at >= 0:
		*n = slices.Insert(*n, at, ranked{key, rv})
	case len(*n) < store.NewestKeys:
		*n = append(*n, ranked{key, rv})
	}
	*n = (*n)[:min(len(*n), store.NewestKeys)]
}

// keys returns the keys for the checkpoint.
func (n newest) keys() (keys [store.NewestKeys]string) {
	for i, v := range n {
		keys[i] = v.key
	}
	return keys
}
