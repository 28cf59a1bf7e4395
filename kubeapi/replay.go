package kubeapi

import (
	"context"
	"errors"
	"strings"

	"github.com/snapcache/snapcache/internal/spool"
	"github.com/snapcache/snapcache/kubeapi/internal/selector"
	"github.com/snapcache/snapcache/store"
)

// replay sends the changes after w.rv from the store's history: of each object the newest one, and
// each deletion, in ascending order. The types are exact for a client that has the state at w.rv.
//
// The API promises every event, so only clients that ask for bookmarks get this, which caches do.
// They would list again after a 410, and see no more of what happened meanwhile.
//
// Only the end of a replay is the state of a resourceVersion. For a client that stops before it and
// continues from its last event, types may be wrong, and under a selector a deletion may be missing.
func (w *watcher) replay(ctx context.Context) error {
	sp, free, err := w.s.newSpool(ctx)
	if err != nil {
		return err
	}
	defer free()
	v, err := w.q.View()
	if err != nil {
		return err
	}
	state := v.State()
	if w.ahead = !state.Synced || past(w.rv, state.RV); w.ahead || w.rv == state.RV {
		v.Close()
		return nil
	}
	if w.q.Events != nil && w.q.Events.between(w.rv) {
		v.Close()
		return tooOld(w.rv, state.RV)
	}
	err = w.collect(ctx, v, sp)
	v.Close()
	if err != nil {
		return err
	}
	sp.Finish(nil)
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
func (w *watcher) collect(ctx context.Context, v store.View, sp *spool.Spool) error {
	state, found := v.State(), false
	for e, err := range v.Changes(w.rv) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case gone(err), errors.As(err, new(*store.CorruptionError)):
			h, _ := v.Horizon()
			return tooOld(w.rv, h.RV)
		case err != nil:
			return err
		case past(e.RV, state.RV):
			continue // it comes again, in its place
		case !strings.HasPrefix(e.Key, w.q.prefix()):
			continue
		}
		if !found && !w.q.opts.AllowWatchBookmarks {
			return tooOld(w.rv, state.RV)
		}
		found = true
		typ, raw, err := w.q.since(e, w.rv)
		if err == nil && typ != "" {
			err = sp.Add(append([]byte{typ[0]}, raw...), store.Record{})
		}
		if err != nil {
			return err
		}
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

// since returns what a change is for a client that sees only what the query selects, and has the
// state at rv; an empty type if it is nothing.
func (q *query) since(e store.Event, rv string) (store.EventType, []byte, error) {
	typ, ok := e.Since(rv)
	if !ok {
		return "", nil, nil
	}
	old, now := typ != store.Added, !e.Deleted
	if !q.selector.Empty() {
		current, err := q.fields.Of(e.Object)
		if err != nil {
			return "", nil, err
		}
		before := current
		if old {
			values, changed, known := e.AttributesAt(q.attributes, rv)
			switch {
			case !known:
				return "", nil, tooOld(rv, e.RV)
			case changed:
				before = selector.FromValues(values)
			}
		}
		old, now = old && q.selector.Matches(e.Key, before), now && q.selector.Matches(e.Key, current)
	}
	switch typ = typeFor(old, now); typ {
	case "":
		return "", nil, nil
	case store.Deleted:
		return typ, withRV(e.Object.JSON(), e.RV), nil
	}
	return typ, e.Object.JSON(), nil
}
