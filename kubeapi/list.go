package kubeapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/kubeapi/internal/selector"
	"github.com/snapcache/snapcache/kubeapi/internal/status"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// writeBufferBytes is how much of a list is collected before it is written.
const writeBufferBytes = 32 << 10

// query is the selection of a list or a watch.
type query struct {
	*served
	opts      internalversion.ListOptions
	selector  selector.Selector
	namespace string // empty for all
	form      form
}

// collection answers a list or a watch.
func (s *Server) collection(w http.ResponseWriter, r *request, d decision) error {
	q, err := newQuery(r, d)
	if err != nil {
		return err
	}
	s.expect(r.Context(), q, r.verb)
	if r.verb == verbWatch {
		return s.watch(w, r, q)
	}
	return s.list(w, r, q)
}

// expect keeps the events and attributes from now on, for a watch that continues from the answer.
func (s *Server) expect(ctx context.Context, q query, v verb) {
	if q.Events == nil {
		return
	}
	attributes := EventsAge
	switch {
	case q.selector.ByKey():
		attributes = 0
	case v == verbWatch && q.opts.AllowWatchBookmarks:
		attributes = AttributesAge // a cache, which may be away for long
	}
	stored := q.Events.expect(attributes)
	if stored == nil {
		return
	}
	timer := s.opts.Clock.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-stored:
	case <-timer.C(): // the store is slow: the watch may have to continue from the history
	case <-ctx.Done():
	}
}

// newQuery reads the options of a request. That no collection covers it is found after all its other
// faults.
func newQuery(r *request, d decision) (q query, err error) {
	q = d.query
	if q.form, err = negotiate(r, d.of[0]); err != nil {
		return q, err
	}
	if q.opts, err = parseOptions(r.query); err != nil {
		return q, err
	}
	return q, d.err
}

// cover reads the selectors of a request, and finds the collection that covers it.
func (q *query) cover(r *request, of []*served) (err error) {
	labels, fields := r.query.Get("labelSelector"), r.query.Get("fieldSelector")
	named := r.path.name
	if named != "" && fields == "" { // the old form of a watch of one object
		fields = "metadata.name=" + named
	}
	q.selector, err = of[0].asked.Parse(labels, fields)
	name, _ := q.selector.Name()
	switch {
	case errors.Is(err, selector.ErrNotStored):
		return notCovered{status.Error(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s is forbidden: %v: ask the kube-apiserver", groupResource(of[0].info), err))}
	case err != nil:
		return badRequest(err.Error())
	case named != "" && named != name:
		return badRequest("fieldSelector metadata.name doesn't match requested name")
	}
	q.namespace = r.path.namespace
	place := q.namespace
	if ns, ok := q.selector.Namespace(); ok && place == "" {
		place = ns
	}
	q.served, err = covering(of, place, q.selector)
	return err
}

// prefix returns the prefix of the keys that the query selects.
func (q *query) prefix() string {
	if q.namespace == "" || !q.info.Namespaced {
		return ""
	}
	return q.namespace + "/"
}

// list answers with the selected objects.
func (s *Server) list(w http.ResponseWriter, r *request, q query) error {
	rv, err := parseRV(q.opts.ResourceVersion, verbList)
	if q.opts.Continue == "" { // else it is not allowed
		if err != nil {
			return err
		}
		q.opts.ResourceVersion = rv
	}
	if err := q.form.check(); err != nil {
		return err
	}
	pg, err := s.page(r, w.Header(), &q)
	if err != nil {
		return err
	}
	defer pg.sp.free()
	if pg.limit > 0 {
		// Whether there are more objects is written before the first one.
		err := q.copy(r.Context(), pg)
		pg.view.Close()
		pg.undo = nil // see startCopy
		if err != nil {
			return err
		}
		pg.sp.Finish(nil)
		return s.sendList(w, r, &q, pg)
	}
	defer q.startCopy(r.Context(), pg)() // before the spool is closed
	return s.sendList(w, r, &q, pg)
}

// startCopy copies a page to its spool, in a goroutine beside the one that reads the spool, and closes
// the page's view. The returned function ends the copy. If the copy panicked, that function panics: in
// the handler a panic ends only the request, in the goroutine it would end the process.
func (q *query) startCopy(ctx context.Context, pg *page) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	copied := make(chan struct{})
	var panicked error
	go func() {
		defer close(copied)
		defer pg.view.Close()
		defer func() {
			if p := recover(); p != nil {
				panicked = fmt.Errorf("%v\n%s", p, debug.Stack())
				pg.sp.Finish(panicked)
			}
		}()
		pg.sp.Finish(q.copy(ctx, pg))
		pg.undo = nil // events that may be no longer in memory otherwise
	}()
	return func() {
		cancel()
		if <-copied; panicked != nil {
			panic(panicked)
		}
	}
}

// copy copies the objects of a page to its spool: records as they are stored if all are selected, else
// the JSON of the selected ones.
func (q *query) copy(ctx context.Context, pg *page) error {
	var copied int64
	var buf []byte
	last := ""
	for rec, err := range pg.records(q.prefix()) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if pg.limit > 0 && copied == pg.limit {
			return pg.cut(q, last)
		}
		if q.selector.Empty() && len(pg.undo) == 0 { // undone records are not as the view's are stored
			err = pg.sp.Add(nil, rec)
			copied++
		} else {
			var ok bool
			var raw []byte
			if raw, ok, err = q.match(rec, &buf); ok {
				err = pg.sp.Add(raw, store.Record{})
				copied++
			}
		}
		if err != nil {
			return err
		}
		last = rec.Key
	}
	return nil
}

// eachCopied calls fn with the JSON of each object that copy has put into a spool.
func eachCopied(ctx context.Context, sp *transfer, fn func(raw []byte) error) error {
	return sp.Each(ctx, func(head, object []byte, err error) error {
		switch {
		case err != nil:
			return err
		case object == nil:
			return fn(head)
		}
		return fn(object)
	})
}

// match returns the JSON of a record if the query selects it. It decodes into buf.
func (q *query) match(rec store.Record, buf *[]byte) (raw []byte, ok bool, err error) {
	o := rec.Object
	if o == nil {
		if name, only := q.selector.Name(); only && !strings.HasSuffix("/"+rec.Key, "/"+name) {
			return nil, false, nil // saves the decoding
		}
		if raw, err = rec.Raw(*buf); err != nil {
			return nil, false, err
		}
		*buf = raw
		if o, err = object.FromValid(raw); err != nil {
			return nil, false, err
		}
	}
	if q.selector.Empty() {
		return o.JSON(), true, nil
	}
	a, err := q.fields.Of(o)
	return o.JSON(), err == nil && q.selector.Matches(o.Key(), a), err
}

// sendList writes a list whose objects come from the page's spool.
func (s *Server) sendList(w http.ResponseWriter, r *request, q *query, pg *page) error {
	size, zstd := writeBufferBytes, acceptsCoding(r.Request, "zstd")
	if zstd {
		w, size = &zstdWriter{ResponseWriter: w}, packBytes
	}
	out := &listWriter{w: bufio.NewWriterSize(impatient{w, http.NewResponseController(w)}, size), q: q, meta: pg.meta, now: s.opts.Clock.Now()}
	started := false
	start := func() error {
		started = true
		setJSON(w.Header())
		if zstd {
			setPacked(w.Header(), "zstd")
		}
		return out.begin()
	}
	err := eachCopied(r.Context(), pg.sp, func(raw []byte) error {
		if !started {
			if err := start(); err != nil {
				return err
			}
		}
		return out.item(raw)
	})
	if err == nil && !started {
		err = start()
	}
	if err == nil {
		err = out.end()
	}
	return err
}
