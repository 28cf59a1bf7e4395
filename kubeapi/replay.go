package kubeapi

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/snapcache/snapcache/kubeapi/internal/selector"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// replay sends the changes after w.rv from the store's history: of each object the newest one, and
// each deletion, in ascending order. The types are exact for a client that has the state at w.rv.
//
// The API promises every event, so only clients that ask for bookmarks get this, which caches do.
// They would list again after a 410, and see no more of the changes meanwhile.
//
// A client that stops within a replay is not in the state of its last event: an object whose newest
// change comes later is as it was before the replay. But no object is there that has left the
// selection by then, because each exit has its own place. So if the client continues from that event,
// it misses no deletion. It may get MODIFIED or DELETED for an object that entered meanwhile.
//
// The exception is a replay over a gap, of a list or of a batch with several changes of an object. A client
// that stops in it gets 410 here, also after a kill: nothing is sent before the gap is durable. At another
// server it continues. Of the deletions and exits that come after its last event it misses the ones that
// happened before that. Deletions that a list found come first, so that these are few.
func (w *watcher) replay(ctx context.Context) error {
	sp, err := w.admitReplay(ctx)
	if err != nil {
		return err
	}
	defer sp.free()
	v, err := w.q.View()
	if err != nil {
		return err
	}
	state := v.State()
	if w.ahead = !state.Synced || object.NewerRV(w.rv, state.RV); w.ahead || w.rv == state.RV {
		v.Close()
		return nil
	}
	err = w.collect(ctx, v, sp)
	v.Close()
	if err != nil {
		return err
	}
	sp.Finish(nil)
	if sp.Bytes() > 0 && w.q.Flush != nil && w.q.Flush() != nil {
		return tooOld(w.rv, state.RV)
	}
	err = sp.Each(ctx, func(head, _ []byte, _ error) error {
		w.sent.Inc()
		return w.out.event(typeOf(head[0]), head[1:])
	})
	if err != nil {
		return err
	}
	w.rv = state.RV
	if w.q.opts.AllowWatchBookmarks {
		return w.mark()
	}
	return w.out.flush()
}

// collect copies the changes after w.rv to a spool, with their types. It fails before anything is
// sent if the history does not have them all.
func (w *watcher) collect(ctx context.Context, v store.View, sp *transfer) error {
	state, found := v.State(), false
	if skips, err := v.Skips(w.rv); skips || errors.As(err, new(*store.CorruptionError)) {
		return tooOld(w.rv, state.RV)
	} else if err != nil {
		return err
	}
	exits, err := w.exits(ctx, v)
	if err != nil {
		return err
	}
	add := func(typ store.EventType, raw []byte) error {
		return sp.Add(append([]byte{typ[0]}, raw...), store.Record{})
	}
	for e, err := range w.changes(ctx, v, w.rv) {
		switch {
		case err != nil:
			return err
		case object.NewerRV(e.RV, state.RV):
			continue // it comes again, in its place
		case !found && !w.q.opts.AllowWatchBookmarks:
			return tooOld(w.rv, state.RV)
		}
		found = true
		for len(exits) > 0 && object.NewerRV(e.RV, exits[0].rv) {
			if err := w.exit(ctx, v, exits[0], add); err != nil {
				return err
			}
			exits = exits[1:]
		}
		typ, raw, err := w.q.since(e, w.rv)
		if err == nil && typ != "" {
			err = add(typ, raw)
		}
		if err != nil {
			return err
		}
	}
	for _, x := range exits {
		if err := w.exit(ctx, v, x, add); err != nil {
			return err
		}
	}
	return nil
}

// changes yields the changes after a resourceVersion that are in the client's namespace.
func (w *watcher) changes(ctx context.Context, v store.View, since string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for e, err := range v.Changes(since) {
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case gone(err), errors.As(err, new(*store.CorruptionError)):
				h, _ := v.Horizon()
				err = tooOld(w.rv, cmp.Or(h.RV, v.State().RV))
			case err == nil && !strings.HasPrefix(e.Key, w.q.prefix()):
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// exit is the change with which an object left the selection before its newest change.
type exit struct {
	rv    string
	since string // the newest change of the object is the first one after this resourceVersion
}

// exits returns the exits after w.rv, in ascending order.
func (w *watcher) exits(ctx context.Context, v store.View) (all []exit, err error) {
	if w.q.selector.ByKey() || !w.q.opts.AllowWatchBookmarks {
		return nil, nil
	}
	since := w.rv
	for e, err := range w.changes(ctx, v, w.rv) {
		if err != nil {
			return nil, err
		}
		_, _, left, err := w.q.selected(e, w.rv)
		if err != nil {
			return nil, err
		}
		if left != "" && !object.NewerRV(left, v.State().RV) {
			all = append(all, exit{left, since})
		}
		since = e.RV
	}
	slices.SortStableFunc(all, func(a, b exit) int {
		order, _ := object.CompareRV(a.rv, b.rv)
		return order
	})
	return all, nil
}

// exit adds an exit as a deletion, with the newest state of the object.
func (w *watcher) exit(ctx context.Context, v store.View, x exit, add func(store.EventType, []byte) error) error {
	for e, err := range w.changes(ctx, v, x.since) {
		if err != nil {
			return err
		}
		return add(store.Deleted, withRV(e.Object.JSON(), x.rv))
	}
	return nil
}

// typeOf returns the type of an event from its first letter.
func typeOf(letter byte) store.EventType {
	switch letter {
	case store.Added[0]:
		return store.Added
	case store.Deleted[0]:
		return store.Deleted
	}
	return store.Modified
}

// since returns the event of a change for a client that sees only objects of the query, and has the
// state at rv; an empty type if there is none. The exit of the object, if any, comes before.
func (q *query) since(e store.Event, rv string) (store.EventType, []byte, error) {
	old, now, left, err := q.selected(e, rv)
	if err != nil {
		return "", nil, err
	}
	switch typ := typeFor(old && left == "", now); typ {
	case "":
		return "", nil, nil
	case store.Deleted:
		return typ, withRV(e.Object.JSON(), e.RV), nil
	default:
		return typ, e.Object.JSON(), nil
	}
}

// selected reports whether the query selected the object of a change at rv, and whether it does now.
// left is the resourceVersion with which a selected object first left the selection, empty if that
// was not before this change.
func (q *query) selected(e store.Event, rv string) (old, now bool, left string, err error) {
	typ, ok := e.Since(rv)
	if !ok {
		return false, false, "", nil
	}
	old, now = typ != store.Added, !e.Deleted
	if q.selector.ByKey() {
		matches := q.selector.Matches(e.Key, selector.Attributes{})
		return old && matches, now && matches, "", nil
	}
	current, err := q.fields.Of(e.Object)
	if err != nil {
		return false, false, "", err
	}
	last := q.selector.Matches(e.Key, current)
	if now = now && last; !old {
		return false, now, "", nil
	}
	if _, _, known := e.AttributesAt(q.attributes, rv); !known {
		return false, false, "", tooOld(rv, e.RV)
	}
	rows := e.Attributes.Rows
	rows = rows[sort.Search(len(rows), func(i int) bool { return object.NewerRV(rows[i].RV, rv) }):]
	matched := func(i int) bool {
		if i == len(rows) {
			return last
		}
		return q.selector.Matches(e.Key, selector.FromValues(rows[i].Values))
	}
	old = matched(0)
	for i, r := range rows {
		if old && left == "" && !matched(i+1) && object.NewerRV(e.RV, r.RV) {
			left = r.RV
		}
	}
	return old, now, left, nil
}
