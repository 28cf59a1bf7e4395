package kubeapi

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// page is the part of a collection that a list answers with: the state of a view or, for an older
// resourceVersion, that state with the later changes undone.
type page struct {
	view  store.View
	sp    *transfer
	meta  listMeta
	after string    // the key after which it begins
	limit int64     // 0 for none
	undo  []undoing // ordered by key
}

// undoing is the state of a key before it was changed; a nil object means that there was none.
type undoing struct {
	key    string
	object *object.Object
}

// page returns the page that a list asks for. The caller closes its view, and frees its transfer.
func (s *Server) page(r *request, h http.Header, q *query) (*page, error) {
	rv, from := q.opts.ResourceVersion, token{}
	if q.opts.Continue != "" {
		var err error
		if from, err = parseToken(q.opts.Continue); err != nil {
			return nil, badRequest("invalid continue token: " + err.Error())
		}
		if rv != "" && rv != "0" {
			return nil, badRequest("specifying resource version is not allowed when using continue")
		}
		rv = from.at()
	}
	v, sp, err := s.admit(r, h, q, rv)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	pg := &page{view: v, sp: sp, meta: listMeta{RV: v.State().RV}, limit: q.opts.Limit}
	switch {
	case q.opts.Continue != "":
		pg.after = q.prefix() + from.after()
		if from.RV > 0 {
			err = pg.goBack(ctx, q, rv, func() error { return continueExpired(from) })
		}
	case exact(&q.opts):
		err = pg.goBack(ctx, q, rv, func() error { return pg.expired(rv) })
	case rv == "0":
		pg.limit = 0
	}
	if err != nil {
		v.Close()
		sp.free()
		return nil, err
	}
	return pg, nil
}

// expired returns the error for a past state that is not known any more. If the history has all changes
// since, so that a watch can continue from it, the error has the time at which the history begins:
// another agent then does not list, if its state is not older than that.
func (p *page) expired(rv string) error {
	err := expired("The resourceVersion for the provided list is too old.")
	if h, failed := p.view.Horizon(); failed == nil && reached(rv, h.RV) {
		cause := metav1.StatusCause{Type: store.HistorySinceCause, Message: h.Time.UTC().Format(time.RFC3339Nano)}
		err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{cause}}
	}
	return err
}

// goBack makes the page one of the state at rv. It returns old's error if that state is not known
// any more.
func (p *page) goBack(ctx context.Context, q *query, rv string, old func() error) error {
	now := p.meta.RV
	p.meta.RV = rv
	if cmp, ok := object.CompareRV(rv, now); ok && cmp == 0 {
		return nil
	}
	if q.Events != nil {
		if undo, ok := q.Events.undo(ctx, rv, now); ok {
			for key, o := range undo {
				p.undo = append(p.undo, undoing{key, o})
			}
			slices.SortFunc(p.undo, func(a, b undoing) int { return cmp.Compare(a.key, b.key) })
			return nil
		}
	}
	if skips, err := p.view.Skips(rv); err != nil {
		return err
	} else if skips {
		return old()
	}
	for _, err := range p.view.Changes(rv) {
		if err != nil && !gone(err) {
			return err
		}
		return old()
	}
	return nil // there was no change since
}

// records yields the records of the page and, as long as the caller goes on, the ones after it.
func (p *page) records(prefix string) iter.Seq2[store.Record, error] {
	stored := p.view.Records(prefix, p.after)
	undo := slices.DeleteFunc(slices.Clone(p.undo), func(u undoing) bool {
		return !strings.HasPrefix(u.key, prefix) || u.key <= p.after
	})
	if len(undo) == 0 {
		return stored
	}
	return func(yield func(store.Record, error) bool) {
		// before yields the undone states of keys before a key; it returns false if the caller stops.
		before := func(key string) bool {
			for len(undo) > 0 && undo[0].key < key {
				u := undo[0]
				undo = undo[1:]
				if u.object != nil && !yield(recordOf(u), nil) {
					return false
				}
			}
			return true
		}
		for rec, err := range stored {
			if err == nil && !before(rec.Key) {
				return
			}
			if err == nil && len(undo) > 0 && undo[0].key == rec.Key {
				u := undo[0]
				if undo = undo[1:]; u.object == nil {
					continue
				}
				rec = recordOf(u)
			}
			if !yield(rec, err) {
				return
			}
		}
		before("\xff")
	}
}

func recordOf(u undoing) store.Record {
	raw := u.object.JSON()
	return store.Record{
		Header: store.Header{Key: u.key, UID: string(u.object.GetUID()), RV: u.object.GetResourceVersion(), Bytes: len(raw)},
		// A copy: the caller decodes the next record into the same buffer.
		Stored: raw, Decode: func(_ string, stored, buf []byte) ([]byte, error) { return append(buf[:0], stored...), nil },
	}
}

// cut ends the page after the key last, with more keys to come.
func (p *page) cut(q *query, last string) error {
	p.meta.Continue = newToken(p.meta.RV, strings.TrimPrefix(last, q.prefix())).String()
	if !q.selector.Empty() {
		return nil
	}
	first := p.after == "" && q.prefix() == "" && len(p.undo) == 0
	p.after = last
	if first {
		left := p.view.State().Count - p.limit
		p.meta.Remaining = &left
		return nil
	}
	left, err := p.count(q.prefix())
	p.meta.Remaining = &left
	return err
}

// count returns how many objects the page has.
func (p *page) count(prefix string) (n int64, err error) {
	if len(p.undo) == 0 {
		for _, err := range p.view.Headers(prefix, p.after) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	for _, err := range p.records(prefix) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
