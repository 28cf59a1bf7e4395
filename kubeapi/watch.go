package kubeapi

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/seats"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

const (
	// bookmarkInterval is the time between two bookmarks, as in a kube-apiserver.
	bookmarkInterval = time.Minute

	// beforeEnd is how long before the end of a watch its last bookmark is sent.
	beforeEnd = 2 * time.Second

	// minWatch is the least length of a watch without timeoutSeconds; the length is random, up to
	// twice as long, so that clients do not all come back at once.
	minWatch = 30 * time.Minute

	// maxSeconds is the greatest number of seconds in a time.Duration.
	maxSeconds = int64(math.MaxInt64 / time.Second)
)

// errWatchOver means that a watch ends in good order: at its timeout, or because the server stops.
var errWatchOver = errors.New("the watch is over")

// watcher delivers the events of a collection to one client.
type watcher struct {
	s      *Server
	q      *query
	client seats.Client
	out    *frameWriter
	rv     string // up to which the client has the events

	sent prometheus.Counter // of events

	cursor *cursor // of the events
	ahead  bool    // the client is ahead of the cache, and gets nothing until that has caught up

	// ends is nil if the watch has no end; bookmark is nil if the client did not ask for bookmarks.
	ends     clock.Timer
	bookmark clock.Timer
	recheck  clock.Timer // nil if everybody may watch
	deadline time.Time

	mayContinue func() error // nil if everybody may watch
}

// watch answers with events until the client or the time ends it.
func (s *Server) watch(w http.ResponseWriter, r *request, q query) error {
	rv, err := parseRV(q.opts.ResourceVersion, verbWatch)
	if err != nil {
		return err
	}
	if err := q.form.check(); err != nil {
		return err
	}
	wt := &watcher{s: s, q: &q, client: seatsFor(r), rv: rv, sent: s.opts.Metrics.sent(q.info.ID), mayContinue: s.mayContinue(r, false)}
	initial := rv == "" || rv == "0"
	if send := q.opts.SendInitialEvents; send != nil {
		initial = *send
	}
	if !s.watches.TryAcquire(1) {
		return s.refuse(RefusedWatches, "too many watches are open")
	}
	defer s.watches.Release(1)
	if err := s.hold(r, q.selector.Bytes()); err != nil {
		return err
	}
	if q.Events != nil { // before the state is read, so that no event is missed
		wt.cursor = q.Events.open(q.place(), q.concerns)
		defer wt.cursor.close()
	}
	from := rv
	if rv == "" && q.opts.SendInitialEvents == nil {
		from = "0"
	}
	wt.out = newFrameWriter(w, r.Request, &q)
	defer wt.out.dog.end()
	pg := &page{}
	if initial {
		pg.view, pg.sp, err = s.admit(r, http.Header{}, &q, from)
	} else {
		err = wt.resume()
	}
	switch {
	case initial && isTooNew(err):
		return errors.Join(wt.out.failure(err), wt.out.end())
	case err != nil:
		return err
	}
	stop := wt.startTimers()
	defer stop()
	if initial {
		err = wt.initial(r.Context(), pg)
	} else {
		err = wt.out.start()
	}
	if err == nil {
		err = wt.run(r.Context(), !initial && rv != "" && rv != "0")
	}
	if status := new(statusError); errors.As(err, status) {
		err = wt.out.failure(err)
	}
	if err == nil || errors.Is(err, errWatchOver) {
		return wt.out.end()
	}
	return err
}

// resume begins a watch without initial objects: at the newest state, if the client names none. Its age does
// not matter: the client has that state, and waits for changes.
func (w *watcher) resume() error {
	v, err := w.q.View() // fails if the cache is being closed, unlike State
	if err != nil {
		return err
	}
	defer v.Close()
	if !v.State().Synced {
		return later("storage is (re)initializing")
	}
	if w.rv == "" || w.rv == "0" {
		w.rv = v.State().RV
	}
	return nil
}

// startTimers starts the timers of the watch.
func (w *watcher) startTimers() (stop func()) {
	length := minWatch + rand.N(minWatch) //nolint:gosec // spreads load
	if t := w.q.opts.TimeoutSeconds; t != nil && *t != 0 {
		length = time.Duration(min(max(0, *t), maxSeconds)) * time.Second
	}
	clk := w.s.opts.Clock
	w.deadline = clk.Now().Add(length)
	w.ends = clk.NewTimer(length)
	timers := []clock.Timer{w.ends}
	if w.q.opts.AllowWatchBookmarks {
		w.bookmark = clk.NewTimer(w.untilBookmark())
		timers = append(timers, w.bookmark)
	}
	if w.mayContinue != nil {
		w.recheck = clk.NewTimer(access.RecheckInterval)
		timers = append(timers, w.recheck)
	}
	return func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// untilBookmark returns the time to the next bookmark: a minute, or less before the end.
func (w *watcher) untilBookmark() time.Duration {
	left := w.deadline.Sub(w.s.opts.Clock.Now()) - beforeEnd
	if left > 0 {
		return min(left, bookmarkInterval)
	}
	return bookmarkInterval
}

// initial sends the objects of a page as additions, closes its view, frees its transfer, and notes where
// the client is.
func (w *watcher) initial(ctx context.Context, pg *page) error {
	w.rv = pg.view.State().RV
	defer pg.sp.free() // a watch lasts longer than its first objects
	defer w.q.startCopy(ctx, pg)()
	if err := w.out.start(); err != nil {
		return err
	}
	if err := eachCopied(ctx, pg.sp, func(raw []byte) error { return w.out.event(store.Added, raw) }); err != nil {
		return err
	}
	if w.q.opts.AllowWatchBookmarks {
		if err := w.out.bookmark(w.rv, true); err != nil {
			return err
		}
	}
	return w.out.flush()
}

// run delivers the events after w.rv until the end. A watch that resumes is counted with its tier.
func (w *watcher) run(ctx context.Context, resumes bool) error {
	if w.q.Events == nil {
		return w.replayed(ctx)
	}
	w.cursor.seek(w.rv)
	bookmark := false
	for {
		u := w.cursor.take()
		w.rv = u.rv
		if u.ended {
			return tooOld(w.rv, u.head)
		}
		if w.q.Description() != w.q.desc {
			return w.redescribed(ctx)
		}
		if resumes {
			resumes = false
			w.s.opts.Metrics.resumed(w.q.info.ID, u.known, w.q.opts.AllowWatchBookmarks)
		}
		if err := w.advance(ctx, u); err != nil {
			return err
		}
		if !u.known && w.rv != u.rv {
			w.cursor.seek(w.rv)
			continue
		}
		if bookmark {
			if err := w.mark(); err != nil {
				return err
			}
		}
		var err error
		if bookmark, err = w.wait(ctx, u.more); err != nil {
			return err
		}
	}
}

// redescribed ends a watch in good order, since the resource has another definition: as at a
// kube-apiserver, the client continues under that one.
func (w *watcher) redescribed(ctx context.Context) error {
	if w.bookmark != nil {
		if err := w.last(ctx); err != nil {
			return err
		}
	}
	return errWatchOver
}

// advance delivers the unseen changes, from the store's history if the events are not known.
func (w *watcher) advance(ctx context.Context, u unseen) error {
	if !u.known {
		return w.replay(ctx)
	}
	if err := w.deliver(u.events); err != nil {
		return err
	}
	if w.ahead = object.NewerRV(w.rv, u.head); !w.ahead {
		w.rv = u.head
	}
	return nil
}

// replayed delivers the content of a file, which does not change, and waits for the end.
func (w *watcher) replayed(ctx context.Context) error {
	if err := w.replay(ctx); err != nil {
		return err
	}
	for {
		bookmark, err := w.wait(ctx, nil)
		if bookmark {
			err = w.mark()
		}
		if err != nil {
			return err
		}
	}
}

// wait blocks until there may be more to send, or it is time for a bookmark.
func (w *watcher) wait(ctx context.Context, more <-chan struct{}) (bookmark bool, _ error) {
	var due, recheck <-chan time.Time
	if w.bookmark != nil {
		due = w.bookmark.C()
	}
	if w.recheck != nil {
		recheck = w.recheck.C()
	}
	select {
	case <-more:
		return false, nil
	case <-ctx.Done():
		// The server stops, or the client is gone. The stream ends in good order, since everything
		// up to w.rv was sent: after an error, an informer lists again instead of continuing, and
		// after less than a second without an event or a bookmark.
		if w.bookmark != nil {
			_ = w.last(ctx) // fails if the client is gone
		}
		return false, errWatchOver
	case <-w.ends.C():
		return false, errWatchOver
	case <-recheck:
		w.recheck.Reset(access.RecheckInterval)
		if w.mayContinue() != nil {
			return false, errWatchOver // the next request gets the reason
		}
		return false, nil
	case <-due:
		w.bookmark.Reset(w.untilBookmark())
		return true, nil
	}
}

// last sends a bookmark of where the client is at the end of the watch.
func (w *watcher) last(ctx context.Context) error {
	if w.cursor != nil {
		if u := w.cursor.take(); u.known && !u.ended {
			w.rv = u.rv
			if err := w.advance(ctx, u); err != nil {
				return err
			}
		}
	}
	return w.mark()
}

// mark sends a bookmark, unless the client is ahead of the cache.
func (w *watcher) mark() error {
	if w.ahead {
		return nil
	}
	if err := w.out.bookmark(w.rv, false); err != nil {
		return err
	}
	return w.out.flush()
}

// deliver sends events that the query selects.
func (w *watcher) deliver(events []*event) error {
	sent := false
	for _, x := range events {
		if object.NewerRV(x.RV, w.rv) {
			w.rv = x.RV
		}
		if !strings.HasPrefix(x.Key, w.q.prefix()) {
			continue
		}
		typ, err := w.q.typeFor(x)
		if err != nil {
			return err
		}
		if typ == "" {
			continue
		}
		sent = true
		if err := w.out.transition(typ, x); err != nil {
			return err
		}
		w.sent.Inc()
	}
	if !sent {
		return nil
	}
	return w.out.flush()
}

// typeFor returns the type of an event for a client that sees only objects of the query; empty if it
// gets none.
func (q *query) typeFor(x *event) (store.EventType, error) {
	old, now := x.Old != nil, x.Type != store.Deleted
	if !q.selector.Empty() {
		a := x.attributes(q.fields, q.attributes)
		if a.err != nil {
			return "", a.err
		}
		old, now = old && q.selector.Matches(x.Key, a.before), now && q.selector.Matches(x.Key, a.now)
	}
	return typeFor(old, now), nil
}

// concerns reports whether a watch has to look at an event.
func (q *query) concerns(x *event) bool {
	typ, err := q.typeFor(x)
	return typ != "" || err != nil // it ends the watch
}

// place returns the key of the only object that the query selects, or the prefix of the keys.
func (q *query) place() string {
	if name, ok := q.selector.Name(); ok && (q.prefix() != "" || !q.info.Namespaced) {
		return q.prefix() + name
	}
	return q.prefix()
}

// typeFor returns the type of an event for a client whose selection had the object before, or has it
// now; empty if the event is nothing to it.
func typeFor(before, now bool) store.EventType {
	switch {
	case before && now:
		return store.Modified
	case now:
		return store.Added
	case before:
		return store.Deleted
	}
	return ""
}
