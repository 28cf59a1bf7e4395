package localapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Bookmark is the type of a [Change] that says up to where changes were told.
const Bookmark store.EventType = "BOOKMARK"

// ChangeQuery says which changes are wanted: those after Since, a resourceVersion,
// or those that the cache heard of at SinceTime or later, in whole seconds. One of
// the two is needed.
type ChangeQuery struct {
	Since     string
	SinceTime time.Time

	// Namespace is the only one to tell about; empty for all. It does not matter where
	// the objects live in none.
	Namespace string

	// Objects asks for the objects too.
	Objects bool

	// Follow asks for what comes, too, until the context ends.
	Follow bool
}

// Change is the newest change of one object, or a deletion, or a [Bookmark].
type Change struct {
	Type store.EventType `json:"type"`

	// ResourceVersion is that of the change. Of a bookmark it is what to give as Since
	// to go on from here.
	ResourceVersion string `json:"resourceVersion"`

	// Time is when the cache heard of the change.
	Time time.Time `json:"time,omitzero"`

	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`

	// Object is what is there now, or what was there last; nil where it was not asked
	// for.
	Object *object.Object `json:"object,omitempty"`
}

// encodeChange returns a change as JSON, with the object byte for byte but for
// white space.
func encodeChange(c Change) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(c); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func decodeChange(b []byte) (Change, error) {
	var c struct {
		Change
		Object json.RawMessage `json:"object"` // in the place of Change's
	}
	err := json.Unmarshal(b, &c)
	if err == nil && c.Object != nil {
		c.Change.Object, err = object.FromValid(c.Object)
	}
	return c.Change, err
}

// Changes implements [Source].
func (r *reader) Changes(ctx context.Context, collection string, q ChangeQuery, each func(Change) error) error {
	switch {
	case (q.Since == "") == q.SinceTime.IsZero():
		return fmt.Errorf("%w: changes since when: a resourceVersion or a time is needed", ErrBadQuery)
	case q.Follow && r.opts.Changed == nil:
		return fmt.Errorf("collection %s: %w", collection, ErrNoFollow)
	}
	t := teller{r: r, collection: collection, q: q}
	for {
		var changed <-chan struct{}
		if q.Follow {
			// Before the view is taken, so that whatever is not in it is heard of.
			changed = r.opts.Changed(collection)
		}
		if err := t.tell(ctx, each); err != nil || !q.Follow {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.opts.Done:
			return fmt.Errorf("%w any more: it is stopping", ErrNoAgent)
		case <-changed:
		}
	}
}

// teller tells the changes of a collection, from one view after the other.
type teller struct {
	r          *reader
	collection string
	q          ChangeQuery

	begun bool        // there was a view
	state store.State // of the newest

	// ahead are the changes past state.RV that were told: they come again.
	ahead map[place]bool
}

// place is where a change stands in a history.
type place struct {
	rv, key string
	deleted bool
}

// tell passes on what a new view has, and then how far that reaches.
func (t *teller) tell(ctx context.Context, each func(Change) error) error {
	sp := newSpool(t.r.opts.SpoolDir)
	defer sp.close()
	var damaged damage
	before, anything := t.state.RV, !t.begun
	err := t.r.view(t.collection, func(_ store.DB, v store.View) error {
		return t.copy(ctx, v, &damaged, func(c Change) error {
			anything = true
			b, err := encodeChange(c)
			if err != nil {
				return err
			}
			return sp.add(b)
		})
	})
	if err != nil {
		return err
	}
	err = sp.each(ctx, func(b []byte) error {
		c, err := decodeChange(b)
		if err != nil {
			return fmt.Errorf("spool: %w", err)
		}
		return each(c)
	})
	if err == nil {
		err = damaged.err()
	}
	if err != nil || !anything && t.state.RV == before {
		// After damage there is nothing to go on from: what changed is not complete.
		return err
	}
	return each(Change{Type: Bookmark, ResourceVersion: t.state.RV})
}

// copy calls each for what a view has after what was told before.
func (t *teller) copy(ctx context.Context, v store.View, damaged *damage, each func(Change) error) error {
	from, err := v.Horizon()
	if err != nil {
		return err
	}
	now := v.State()
	since, err := t.since(from, now)
	if err != nil {
		return err
	}
	again := t.ahead
	t.ahead = nil
	for e, err := range v.Changes(since) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case e.Key != "" && t.elsewhere(v, e.Key):
			continue
		case err != nil && damaged.add(err):
			continue
		case err != nil:
			return t.explain(err, from, now)
		}
		at := place{e.RV, e.Key, e.Deleted}
		if past(e.RV, now.RV) {
			if past(e.FirstRV, now.RV) {
				// To go on from the checkpoint means not to know of this object, and so not
				// to be told when it goes. It is for the next time.
				continue
			}
			if t.q.Follow {
				t.remember(at)
			}
		}
		if what, ok := t.what(e, since); ok && !again[at] {
			if err := each(t.change(e, what)); err != nil {
				return err
			}
		}
	}
	t.begun, t.state = true, now
	return nil
}

func (t *teller) remember(p place) {
	if t.ahead == nil {
		t.ahead = map[place]bool{}
	}
	t.ahead[p] = true
}

// byTime says that what is wanted now begins at a time.
func (t *teller) byTime() bool { return !t.begun && t.q.Since == "" }

// from is the time that a query by time begins at. Histories know seconds.
func (t *teller) from() time.Time { return t.q.SinceTime.Truncate(time.Second) }

// since returns the resourceVersion after which the view is to be read. A history
// that can't tell all from there on is an error.
func (t *teller) since(from store.Horizon, now store.State) (string, error) {
	switch {
	case t.byTime():
		// What the horizon has moved past may be of that same second.
		if !from.Time.Before(t.from()) {
			return "", tooOld(t.from().UTC().Format(time.RFC3339), from)
		}
		return from.RV, nil
	case !t.begun:
		return t.q.Since, nil
	case !now.LastList.Equal(t.state.LastList) && !store.ContinuesHistory(t.state, now.Checkpoint):
		// The same numbers may mean something else now.
		return "", t.anew(from, now)
	}
	return t.state.RV, nil
}

// elsewhere says that a key is of another namespace than the one that is wanted.
func (t *teller) elsewhere(v store.View, key string) bool {
	return t.q.Namespace != "" && v.Info().Namespaced && store.KeyNamespace(key) != t.q.Namespace
}

// what says what an event is to the one who asks.
func (t *teller) what(e store.Event, since string) (what store.EventType, ok bool) {
	if !t.byTime() {
		return e.Since(since)
	}
	if e.Time.Before(t.from()) {
		return "", false
	}
	return e.SinceTime(t.from())
}

func (t *teller) change(e store.Event, what store.EventType) Change {
	c := Change{Type: what, ResourceVersion: e.RV, Time: e.Time, Namespace: store.KeyNamespace(e.Key), Name: e.Key}
	if _, name, ok := strings.Cut(e.Key, "/"); ok {
		c.Name = name
	}
	if t.q.Objects {
		c.Object = e.Object
	}
	return c
}

// explain says for one who asks why the store can't tell.
func (t *teller) explain(err error, from store.Horizon, now store.State) error {
	since := t.q.Since
	if t.begun {
		since = t.state.RV
	}
	switch {
	case errors.As(err, new(*store.TooOldError)):
		return tooOld("resourceVersion "+since, from)
	case errors.Is(err, store.ErrFuture) && t.begun:
		return t.anew(from, now)
	case errors.Is(err, store.ErrFuture):
		return fmt.Errorf("resourceVersion %s is %w, which is at %s", since, ErrAhead, now.RV)
	}
	return err
}

func tooOld(what string, from store.Horizon) error {
	return fmt.Errorf("%s is %w: the history begins after RV %s, at %s: list anew",
		what, ErrTooOld, from.RV, from.Time.UTC().Format(time.RFC3339))
}

// anew is for one who followed a history that is gone.
func (t *teller) anew(from store.Horizon, now store.State) error {
	return fmt.Errorf("resourceVersion %s is %w: the history began anew after RV %s, at %s (%s): list anew",
		t.state.RV, ErrTooOld, from.RV, from.Time.UTC().Format(time.RFC3339), now.ListReason)
}

// past says that a is a number past b.
func past(a, b string) bool {
	cmp, ok := object.CompareRV(a, b)
	return ok && cmp > 0
}
