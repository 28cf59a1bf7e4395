package informer

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

// Counts holds how many objects a batch changed in the store.
type Counts struct {
	Added, Updated, Deleted int

	Stale int // events older than the stored object, as a resumed watch replays them
}

func (c *Counts) add(o Counts) {
	c.Added += o.Added
	c.Updated += o.Updated
	c.Deleted += o.Deleted
	c.Stale += o.Stale
}

// Observer gets the results of a loop's batches, in the loop's goroutine. Its methods must not
// block.
type Observer interface {
	// Applied reports a batch that is in the store.
	Applied(c Counts, took time.Duration)

	// StoreFailed reports that the store refused a batch, which the loop retries; nil means that
	// the store works again.
	StoreFailed(err error)
}

// Options are the settings of a loop. Queue and Collection are needed.
type Options struct {
	Name       string
	Queue      *deltafifo.Queue
	Collection store.Collection

	// Flush makes the collection durable when a batch requests it; nil if that is not needed. Its
	// error is only logged: the store reports it and retries.
	Flush func() error

	Processor *Processor // delivers the changes to handlers; nil for none
	Recorder  Recorder   // records the changes; nil for none

	// Replaced is called when a list becomes visible that was made under other rules, so that the
	// same UID and resourceVersion may stand for another object. The handlers get the list
	// afterwards. May be nil.
	Replaced func()

	// Around, if not nil, is called for each batch and has to call apply, which handles the batch.
	Around func(b deltafifo.Batch, apply func() error) error

	// Unversioned reports whether an object may change without getting another resourceVersion, as
	// with fake clients: see reflector.ListWatch. Nil means never.
	Unversioned func() bool

	Observer Observer         // nil for none
	Logger   *slog.Logger     // nil discards
	Clock    clock.WithTicker // nil is the real one
}

// Loop takes batches from a queue into a collection. Run it once; it is the
// collection's only writer.
type Loop struct {
	opts       Options
	checkpoint store.Checkpoint
	newest     newest
	list       *list // the list in progress; nil for none
	recording  bool  // the current batch is recorded
}

// list is a list that is not yet complete in the store.
type list struct {
	replacement store.Replacement
	newest      newest
	notes       []note // in the list's order
	counts      Counts
}

// New returns a loop that has not started.
func New(opts Options) *Loop {
	opts.Clock = cmp.Or[clock.WithTicker](opts.Clock, clock.RealClock{})
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.Observer = cmp.Or[Observer](opts.Observer, NewStats(opts.Clock))
	if opts.Around == nil {
		opts.Around = func(_ deltafifo.Batch, apply func() error) error { return apply() }
	}
	return &Loop{opts: opts, checkpoint: opts.Collection.State().Checkpoint, newest: newestOf(opts.Collection)}
}

// Run applies batches until the queue is closed and empty, then returns nil. When ctx ends it stops
// at once; the next watch replays the changes that were not applied.
func (l *Loop) Run(ctx context.Context) error {
	defer l.abort()
	l.skip(false)
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

// apply puts one batch into the store and hands its changes to the handlers.
func (l *Loop) apply(ctx context.Context, b deltafifo.Batch) error {
	if b.ListAborted {
		l.abort()
		return nil
	}
	start := l.opts.Clock.Now()
	l.recording = l.opts.Recorder != nil && !b.List && l.opts.Recorder.Wanted()
	var diff difference
	err := l.retry(ctx, func() (err error) {
		diff, err = l.difference(b)
		return err
	})
	if err != nil {
		return err
	}
	if b.List {
		return l.applyList(ctx, b, diff, start)
	}
	if b.Flush && l.opts.Flush != nil {
		defer func() {
			if err := l.opts.Flush(); err != nil {
				l.opts.Logger.Warn("could not flush", "error", err)
			}
		}()
	}
	cp := l.checkpoint
	cp.RV = b.Watermark
	cp.Skipped = cp.Skipped || b.Skipped
	if cp == l.checkpoint && len(diff.changes) == 0 {
		return nil // the batch only requests a flush
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
	err = l.commit(ctx, diff.notes, nil, func() error {
		return l.opts.Collection.Apply(store.Batch{Changes: diff.changes, Checkpoint: cp, Gap: diff.gap, Read: diff.read})
	})
	if err != nil {
		return err
	}
	before := l.checkpoint
	l.checkpoint, l.newest = cp, newest
	l.record(before, diff, b.Skipped || b.Events > 0 && !l.recording)
	l.opts.Observer.Applied(diff.counts, l.opts.Clock.Since(start))
	return nil
}

// applyList puts one part of a list into the store. Readers and handlers see none of it before the
// last part.
func (l *Loop) applyList(ctx context.Context, b deltafifo.Batch, diff difference, start time.Time) error {
	if l.list == nil {
		r, err := l.opts.Collection.Replace()
		if err != nil {
			return fmt.Errorf("collection %s: %w", l.opts.Name, err)
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
	l.list.newest = l.list.newest.after(diff.changes)
	l.list.notes = append(l.list.notes, diff.notes...)
	l.list.counts.add(diff.counts)
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
	deleted, listed := l.list.split()
	err := l.commit(ctx, deleted, listed, func() error {
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
	c := l.list.counts
	same := cp.RV == l.checkpoint.RV && c.Added+c.Updated+c.Deleted > 0
	l.checkpoint, l.newest = cp, l.list.newest
	l.skip(same)
	l.opts.Observer.Applied(l.list.counts, l.opts.Clock.Since(start))
	l.list = nil
	return nil
}

// split returns the deletions of a list, ordered by key, and the other notes in the list's order.
func (l *list) split() (deleted, listed []note) {
	for _, n := range l.notes {
		switch n.kind {
		case noteDelete:
			deleted = append(deleted, n)
		case noteAdd, noteUpdate:
			listed = append(listed, n)
		}
	}
	slices.SortFunc(deleted, func(a, b note) int { return strings.Compare(a.key, b.key) })
	return deleted, listed
}

// settle keeps only the newest note of each key of a list that has keys more than once, and counts
// each change once.
func (l *list) settle() {
	newest := make(map[string]int, len(l.notes))
	for i, n := range l.notes {
		newest[n.key] = i
	}
	kept := l.notes[:0]
	for i, n := range l.notes {
		switch {
		case newest[n.key] == i && n.kind != noteNone:
			kept = append(kept, n)
		case n.kind == noteAdd:
			l.counts.Added--
		case n.kind == noteUpdate:
			l.counts.Updated--
		}
	}
	clear(l.notes[len(kept):])
	l.notes = kept
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
				l.opts.Observer.StoreFailed(nil)
			}
			return err
		}
		failed = true
		d := backoff.Step()
		l.opts.Logger.Error("the store refuses changes; they are kept and retried", "wait", d.Round(time.Millisecond), "error", err)
		l.opts.Observer.StoreFailed(err)
		if ended := sleep.For(ctx, l.opts.Clock, d); ended != nil {
			return fmt.Errorf("%w (the store's last error: %w)", ended, err)
		}
	}
}

// commit makes a batch visible and hands it to the handlers, with retries: see [Processor.commit].
func (l *Loop) commit(ctx context.Context, notes, listed []note, apply func() error) error {
	return l.retry(ctx, func() error {
		if l.opts.Processor == nil {
			return apply()
		}
		return l.opts.Processor.commit(notes, listed, apply)
	})
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
