package kubeapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/seats"
	"github.com/snapcache/snapcache/internal/spool"
	"github.com/snapcache/snapcache/store"
)

// transfer is a spool on its way to a client. It takes fewer seats once its size is known.
type transfer struct {
	*spool.Spool
	seat *seats.Seat
}

// Finish ends the sequence, as a Spool's does.
func (t *transfer) Finish(err error) {
	t.Spool.Finish(err)
	t.seat.Narrow(widthOf(t.Bytes()))
}

// free may be called again.
func (t *transfer) free() {
	t.Close()
	t.seat.Leave()
}

// widthOf returns how many seats a number of bytes takes.
func widthOf(bytes int64) int { return int(min(1+bytes/seatBytes, maxWidth)) }

// width returns how many seats the answer from a state takes, before the selected objects are known.
func (q *query) width(s store.State) int {
	if _, named := q.selector.Name(); named {
		return 1
	}
	bytes := s.Bytes
	if limit := q.opts.Limit; limit > 0 && limit < s.Count && q.selector.Empty() && q.opts.ResourceVersion != "0" {
		bytes = bytes / s.Count * limit
	}
	return widthOf(bytes)
}

// seatsFor returns who takes seats for a request. All callers that this machine lets in are one user.
func seatsFor(r *request) seats.Client {
	c := seats.Client{Connection: r.RemoteAddr}
	if caller := access.CallerOf(r.Context()); caller != nil && !caller.Local {
		c.User = caller.User.Username
	}
	return c
}

// admit returns a state for a list at a resourceVersion, and the transfer for it. A list that waits
// for the server or its events holds no seat, and one that waits for a seat holds no view, so that
// the pages of the store can be reused.
func (s *Server) admit(r *request, h http.Header, q *query, rv string) (store.View, *transfer, error) {
	v, err := s.view(r.Context(), h, q.served, rv)
	if err != nil {
		return nil, nil, err
	}
	width, age := q.width(v.State()), h.Get("Age")
	v.Close()
	begun := q.opts.Continue != ""
	timer := s.opts.Clock.NewTimer(waitLimit)
	defer timer.Stop()
	seat, err := s.lists.Take(r.Context(), seatsFor(r), width, begun, timer.C())
	switch {
	case errors.Is(err, seats.ErrNone) && begun:
		s.opts.Metrics.Refused(RefusedLists)
		return nil, nil, later(tooManyLists) // it has to go on before its state is gone
	case errors.Is(err, seats.ErrNone):
		return nil, nil, s.refuse(RefusedLists, tooManyLists)
	case err != nil:
		return nil, nil, err
	}
	if v, err = s.view(r.Context(), h, q.served, "0"); err != nil {
		seat.Leave()
		return nil, nil, err
	}
	if age != "0" {
		h.Set("Age", age) // the server did not answer the probe, which the second view does not repeat
	}
	return v, &transfer{spool.New(s.opts.SpoolDir), seat}, nil
}

const tooManyLists = "too many lists are being sent"

// admitReplay returns the transfer for a replay of the stored history.
func (w *watcher) admitReplay(ctx context.Context) (*transfer, error) {
	began := w.s.opts.Clock.Now()
	seat, err := w.s.replays.Take(ctx, w.client, 1, true, w.ends.C())
	switch {
	case errors.Is(err, seats.ErrNone):
		return nil, errWatchOver
	case err != nil:
		return nil, err
	case w.mayContinue != nil && w.s.opts.Clock.Since(began) >= access.RecheckInterval && w.mayContinue() != nil:
		seat.Leave()
		return nil, errWatchOver // the next request gets the reason
	}
	return &transfer{spool.New(w.s.opts.SpoolDir), seat}, nil
}
