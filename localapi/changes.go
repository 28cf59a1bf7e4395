package localapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/snapcache/snapcache/internal/spool"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Bookmark is the type of a [Change] that carries only the resourceVersion up to which changes are
// complete.
const Bookmark store.EventType = "BOOKMARK"

// ChangeQuery selects the changes after Since, a resourceVersion, or the changes that the cache
// received at SinceTime or later, in whole seconds. A change whose date is before the one of an earlier
// change is among them: the clock was wrong. Exactly one of the two must be set.
type ChangeQuery struct {
	Since     string
	SinceTime time.Time

	// Namespace limits the changes to one namespace; empty for all. It is ignored for
	// cluster-scoped objects.
	Namespace string

	// Key limits the changes to one object; empty for all.
	Key string

	// Objects includes the objects.
	Objects bool

	// Follow also delivers later changes, until the context ends.
	Follow bool
}

// Change is the newest change of one object, its deletion, or a [Bookmark].
type Change struct {
	Type store.EventType `json:"type"`

	// ResourceVersion is the change's. A bookmark's is the Since with which to continue.
	ResourceVersion string `json:"resourceVersion"`

	// Time is when the cache received the change.
	Time time.Time `json:"time,omitzero"`

	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`

	// Object is the current state, or the last one of a deleted object; nil unless
	// [ChangeQuery.Objects] is set.
	Object *object.Object `json:"object,omitempty"`
}

// encodeChange returns a change as JSON, with the object's bytes unchanged except for white space.
func encodeChange(c Change) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(c); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decodeChange decodes a copy of the bytes.
func decodeChange(b []byte) (Change, error) {
	var c struct {
		Change
		Object json.RawMessage `json:"object"` // hides the field of Change
	}
	err := json.Unmarshal(b, &c)
	if err == nil && c.Object != nil {
		c.Change.Object, err = object.FromValid(c.Object)
	}
	return c.Change, err
}

// Changes implements [Source].
func (r *dbSource) Changes(ctx context.Context, collection string, q ChangeQuery, each func(Change) error) error {
	switch {
	case (q.Since == "") == q.SinceTime.IsZero():
		return fmt.Errorf("%w: either since, a resourceVersion, or sinceTime is needed", ErrBadQuery)
	case q.Follow && r.opts.Changed == nil:
		return fmt.Errorf("collection %s: %w", collection, ErrNoFollow)
	}
	t := changeStream{r: r, collection: collection, q: q}
	for {
		var changed <-chan struct{}
		if q.Follow {
			// Get the channel before the view, so that a change that is not in the view closes it.
			changed = r.opts.Changed(collection)
		}
		if err := t.next(ctx, each); err != nil || !q.Follow {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.opts.Done:
			return fmt.Errorf("%w any more: the agent is stopping", ErrNoAgent)
		case <-changed:
		}
	}
}

// changeStream sends the changes of a collection, view by view.
type changeStream struct {
	r          *dbSource
	collection string
	q          ChangeQuery

	begun bool        // a view was read
	state store.State // of the newest view

	// ahead are the changes past state.RV that were sent: the next view has them again.
	ahead map[position]bool
}

// position identifies a change in a history.
type position struct {
	rv, key string
	deleted bool
}

// next takes a view and sends its changes, then a bookmark.
func (t *changeStream) next(ctx context.Context, each func(Change) error) error {
	var corrupt damage
	before, anything := t.state.RV, !t.begun
	read := func(v store.View, sp *spool.Spool) error {
		return t.collect(ctx, v, &corrupt, func(c Change) error {
			anything = true
			var rec store.Record
			if o := c.Object; o != nil { // not as its Object, which would stay in memory
				rec = store.Record{Header: store.Header{Key: o.Key()}, Stored: o.Raw(), Decode: asStored}
				c.Object = nil
			}
			head, err := encodeChange(c)
			if err != nil {
				return err
			}
			return sp.Add(head, rec)
		})
	}
	err := t.r.spooled(ctx, []string{t.collection}, &corrupt, read, func(_ string, head, raw []byte) error {
		c, err := decodeChange(head)
		if err == nil && raw != nil {
			c.Object, err = object.FromValid(bytes.Clone(raw))
		}
		if err != nil {
			return fmt.Errorf("spool: %w", err)
		}
		return each(c)
	})
	if err != nil || !anything && t.state.RV == before {
		// After a corrupt entry there is no bookmark: the changes so far are not complete.
		return err
	}
	return each(Change{Type: Bookmark, ResourceVersion: t.state.RV})
}

// asStored decodes a record that is stored as it is.
func asStored(_ string, stored, _ []byte) ([]byte, error) { return stored, nil }

// collect calls each for the changes in a view that the previous view did not have.
func (t *changeStream) collect(ctx context.Context, v store.View, corrupt *damage, each func(Change) error) error {
	from, err := v.Horizon()
	if err != nil {
		return err
	}
	now := v.State()
	since, err := t.since(from, now)
	if err != nil {
		return err
	}
	if !t.begun && !t.byTime() {
		if skips, err := v.Skips(since); err != nil {
			return err
		} else if skips {
			return fmt.Errorf("resourceVersion %s is %w: the cache went past it in one step, and does not know all that changed since: list again", since, ErrTooOld)
		}
	}
	other := func(key string) bool {
		return t.q.Key != "" && key != t.q.Key || t.q.Namespace != "" && v.Info().Namespaced && store.KeyNamespace(key) != t.q.Namespace
	}
	seen := t.ahead
	t.ahead = map[position]bool{}
	order := dates{now: t.r.opts.Clock.Now()}
	order.wrong(from.Time)
	for e, err := range v.Changes(since) {
		misdated := order.wrong(e.Time)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case e.Key != "" && other(e.Key):
			continue
		case err != nil && corrupt.add(err):
			continue
		case errors.As(err, new(*store.TooOldError)):
			return errTooOld("resourceVersion "+since, from)
		case errors.Is(err, store.ErrNoHistory):
			return fmt.Errorf("%w: it is in memory, see snapcache status and store.type in the agent's configuration", err)
		case errors.Is(err, store.ErrAhead) && t.begun:
			return t.errRelist(from, now)
		case err != nil:
			return err
		}
		at := position{e.RV, e.Key, e.Deleted}
		if object.NewerRV(e.RV, now.RV) {
			if object.NewerRV(e.FirstRV, now.RV) {
				// A client that resumes at the checkpoint does not know this object, and would not
				// receive its deletion. So the next view sends the change.
				continue
			}
			t.ahead[at] = true
		}
		if kind, ok := t.classify(e, since, misdated); ok && !seen[at] {
			if err := each(t.change(e, kind)); err != nil {
				return err
			}
		}
	}
	t.begun, t.state = true, now
	return nil
}

// byTime reports whether the next view is read from a time.
func (t *changeStream) byTime() bool { return !t.begun && t.q.Since == "" }

// from returns the time at which a query by time begins, in whole seconds as in histories.
func (t *changeStream) from() time.Time { return t.q.SinceTime.Truncate(time.Second) }

// since returns the resourceVersion after which to read the view. It fails if the history is not
// complete after that.
func (t *changeStream) since(from store.Horizon, now store.State) (string, error) {
	switch {
	case t.byTime():
		// Changes before the horizon may have the same second. Before the first list there are none.
		if !from.First && !from.Time.Before(t.from()) {
			return "", errTooOld(t.from().UTC().Format(time.RFC3339), from)
		}
		return from.RV, nil
	case !t.begun:
		return t.q.Since, nil
	case !now.LastList.Equal(t.state.LastList) && !store.ContinuesHistory(t.state, now.Checkpoint):
		// The same resourceVersions may have another meaning now.
		return "", t.errRelist(from, now)
	}
	return t.state.RV, nil
}

// classify returns the type of an event for a client that has the state at since. ok is false if the
// client does not need the event. A misdated one may be of any time.
func (t *changeStream) classify(e store.Event, since string, misdated bool) (kind store.EventType, ok bool) {
	if !t.byTime() {
		return e.Since(since)
	}
	if e.Time.Before(t.from()) && !misdated {
		return "", false
	}
	return e.SinceTime(t.from())
}

// dates finds the dates of events that a clock which was behind has made: they are before the date of an
// event that came earlier.
type dates struct {
	newest time.Time // date so far that is not in the future
	now    time.Time
}

// wrong reports whether the next date is wrong. Time daemons set a clock back by small steps.
func (d *dates) wrong(at time.Time) bool {
	if at.After(d.newest) && !at.After(d.now) {
		d.newest = at
	}
	return at.Before(d.newest.Add(-time.Minute))
}

func (t *changeStream) change(e store.Event, kind store.EventType) Change {
	c := Change{Type: kind, ResourceVersion: e.RV, Time: e.Time, Namespace: store.KeyNamespace(e.Key), Name: e.Key}
	if _, name, ok := strings.Cut(e.Key, "/"); ok {
		c.Name = name
	}
	if t.q.Objects {
		c.Object = e.Object
	}
	return c
}

func errTooOld(point string, from store.Horizon) error {
	return fmt.Errorf("%s is %w: the history begins after RV %s, at %s: list again",
		point, ErrTooOld, from.RV, from.Time.UTC().Format(time.RFC3339))
}

func (t *changeStream) errRelist(from store.Horizon, now store.State) error {
	return fmt.Errorf("resourceVersion %s is %w: the history began again after RV %s, at %s (%s): list again",
		t.state.RV, ErrTooOld, from.RV, from.Time.UTC().Format(time.RFC3339), now.ListReason)
}
