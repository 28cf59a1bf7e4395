package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/object"
)

// ListOptions configure a list.
type ListOptions struct {
	// PageSize is the number of objects per page; 0 for all in one body. A server may send more.
	PageSize int64

	// Progress, if not nil, receives how many items have arrived and how many are still to come, -1
	// if unknown. [Source.List] calls it synchronously, during a page and at the end of each page.
	Progress func(count, remaining int64)

	// Invalid, if not nil, receives the error of each item that exists and can't be used, and its
	// key, empty if the source can't read it.
	Invalid func(key string, err error)

	// Deleted receives the key of an item that was delivered or unusable and is no longer part of
	// the list. Only a source that makes lists by a watch calls it, because such a list changes
	// until it is complete.
	Deleted func(key string)

	// WatchTimeout limits a watch that delivers the list and the events after it. A source that
	// lists by pages ignores it.
	WatchTimeout time.Duration

	// Seeded, if not nil, lets the list come from the seed of the cluster, if there is one: see
	// [Cluster.SeedFrom]. It receives the address of the seed once the list has come from there, or
	// why it has not. If no item came from the seed, the list then comes from the server in use;
	// otherwise [Source.List] returns the error, and later lists come from the server in use.
	Seeded func(server string, err error)
}

const (
	// pageRetries limits the retries of a later page if the server names the time to wait (429,
	// 503): a failure would discard the earlier pages. The caller decides about any other failure,
	// and about the first page.
	pageRetries = 5

	// pageAttempts limits the requests for a later page whose connection breaks, with nothing new
	// from one to the next; pageWait is the wait before the second one, and doubles. A server keeps the
	// state of a list for some minutes, and answers 410 after that.
	pageAttempts = 6
	pageWait     = time.Second

	// quickPage: if a page took longer, the page after the next one is not requested before the next one ends.
	quickPage = 5 * time.Second

	// progressItems is the number of items between two calls of Progress within a page.
	progressItems = 1000
)

// List calls each with every object of the newest state and returns the resourceVersion at which
// they are complete. It holds one object at a time and reads from the network as fast as each
// returns. Objects have apiVersion and kind, and are pruned.
//
// A page whose connection breaks is requested again, except for the first one. After an error the
// caller must discard the objects delivered so far. A body that is not one
// complete list of the resource is [ErrBadList]. An error of each is returned wrapped. Errors of
// the API are returned as the server sent them, so a 410 between two pages satisfies
// [apierrors.IsResourceExpired].
//
// [apierrors.IsResourceExpired]:
// https://pkg.go.dev/k8s.io/apimachinery/pkg/api/errors#IsResourceExpired
func (s *Source) List(ctx context.Context, opts ListOptions, each func(*object.Object) error) (string, error) {
	if opts.Seeded != nil && s.seed != nil && !s.seed.failed.Load() {
		if rv, ok, err := s.fromSeed(ctx, opts, each); ok {
			return rv, err
		}
	}
	rv, _, err := s.list(ctx, opts, each)
	return rv, err
}

// list is List at the server in use. It also returns the number of items that came.
func (s *Source) list(ctx context.Context, opts ListOptions, each func(*object.Object) error) (rv string, items int64, err error) {
	l := &lister{s: s, opts: opts, each: each}
	if l.opts.Progress == nil {
		l.opts.Progress = func(_, _ int64) {}
	}
	if l.opts.Invalid == nil {
		l.opts.Invalid = func(string, error) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	now := l.ask(ctx, "")
	defer func() {
		cancel()
		now.close()
		if l.ahead != nil {
			l.ahead.close()
		}
	}()
	for {
		p, err := l.page(ctx, now)
		for attempt, items := 1, l.count; attempt < pageAttempts && isBroken(now, err); attempt++ {
			if l.count > items {
				attempt, items = 1, l.count
			}
			if sleep.For(ctx, clock.RealClock{}, pageWait<<(attempt-1)) != nil {
				break
			}
			now.close()
			l.skip, l.items = max(l.skip, l.items), 0
			now = l.ask(ctx, now.next)
			p, err = l.page(ctx, now)
		}
		if err != nil {
			return "", l.count, fmt.Errorf("list %s: %w", s, s.scoped(err))
		}
		if rv == "" {
			// All pages are of one state. If a server breaks that rule, a watch from the oldest
			// page misses nothing.
			rv = p.rv
		}
		l.opts.Progress(l.count, p.remaining)
		if p.next == "" {
			return rv, l.count, nil
		}
		if p.next == now.next {
			return "", l.count, fmt.Errorf("list %s: %w: the server sent one continue token twice", s, ErrBadList)
		}
		now.close()
		now, l.ahead = l.ahead, nil
		l.items, l.skip = 0, 0
	}
}

// isBroken reports whether the connection broke, or could not be made, for a page that can be requested
// again: a continue token stands for one state, so the server sends the same page.
func isBroken(b *body, err error) bool { return b.next != "" && Classify(err) == Unreachable }

type lister struct {
	s       *Source
	opts    ListOptions
	each    func(*object.Object) error
	count   int64
	items   int64 // of the page, delivered or skipped
	skip    int64 // items of the page that were delivered before
	untyped bool  // an item had no apiVersion or kind
	ahead   *body // the next page; nil if it was not asked for
	quick   bool  // the page before took less than quickPage
}

// body is the answer to the request of one page, which may not have come yet.
type body struct {
	next      string        // the continue token of the request
	done      chan struct{} // closed when the fields below are set
	stream    io.ReadCloser
	mediaType string
	err       error
}

// ask requests a page. The caller closes the result.
func (l *lister) ask(ctx context.Context, next string) *body {
	b := &body{next: next, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.stream, b.mediaType, b.err = l.s.stream(ctx, func() (*rest.Request, error) { return l.s.pageRequest(l.opts.PageSize, next) })
	}()
	return b
}

// close waits for the answer and closes it.
func (b *body) close() {
	<-b.done
	if b.stream != nil {
		_ = b.stream.Close()
	}
}

// pageRequest returns the request of one page of size objects, 0 for all. next is the continue
// token, "" for the first page.
func (s *Source) pageRequest(size int64, next string) (*rest.Request, error) {
	r, err := s.request()
	if err != nil {
		return nil, err
	}
	r.SetHeader("Accept-Encoding", acceptEncodings)
	if size > 0 {
		r.Param("limit", strconv.FormatInt(size, 10))
	}
	if next != "" {
		r.Param("continue", next).MaxRetries(pageRetries)
	}
	return r, nil
}

// page delivers the items of one page. If the page before was quick, it asks for the next page as
// soon as the continue token is known, which most servers send first: the server then prepares it
// meanwhile. On a thin link two pages at once would only take longer each, and a server gives up an
// answer after a minute.
func (l *lister) page(ctx context.Context, b *body) (page, error) {
	began := time.Now()
	<-b.done
	if b.err != nil {
		return page{}, b.err
	}
	p, err := l.read(b.stream, b.mediaType, func(next string) {
		if l.quick {
			l.askNext(ctx, next)
		}
	})
	l.quick = time.Since(began) < quickPage
	if err == nil {
		l.askNext(ctx, p.next)
	}
	return p, err
}

// askNext asks for the next page, if there is one, unless that was done.
func (l *lister) askNext(ctx context.Context, next string) {
	if l.ahead != nil && l.ahead.next == next || next == "" {
		return
	}
	if l.ahead != nil { // a list with metadata twice
		l.ahead.close()
	}
	l.ahead = l.ask(ctx, next)
}

// read delivers the items of one body and checks that it is a list of the resource. It calls more
// with the continue token as soon as it is known.
func (l *lister) read(body io.Reader, mediaType string, more func(next string)) (p page, err error) {
	if mediaType == runtime.ContentTypeProtobuf {
		p, err = parseProtobufPage(body, l.s.opts.Resource, more, l.message)
	} else {
		p, err = parsePage(body, more, l.item, l.deep)
	}
	if err != nil {
		return p, err
	}
	if err := l.checkType(p); err != nil {
		return p, fmt.Errorf("%w: %w", ErrBadList, err)
	}
	if p.rv == "" || p.rv == "0" {
		return p, fmt.Errorf("%w: its resourceVersion is %q, so no watch can follow", ErrBadList, p.rv)
	}
	return p, nil
}

// checkType compares the list's type with the resource's. Items of built-in resources have no type,
// so the list's kind is the only evidence. The list kind of a custom resource is free
// (spec.names.listKind, which discovery does not return), but its group has a dot and its items
// have a type.
func (l *lister) checkType(p page) error {
	want := l.s.opts.Resource
	if want.Kind == "" || p.apiVersion == want.APIVersion() && p.kind == want.Kind+"List" {
		return nil
	}
	custom := strings.Contains(want.GVR.Group, ".") && p.apiVersion == want.APIVersion() &&
		p.kind != "" && p.kind != want.Kind && !l.untyped
	if custom {
		return nil
	}
	return fmt.Errorf("the body is a %s %s, not a %s %sList", quoteEmpty(p.apiVersion), quoteEmpty(p.kind), want.APIVersion(), want.Kind)
}

// item delivers an item of JSON.
func (l *lister) item(raw []byte) error {
	o, typed, err := l.s.dec.item(raw)
	l.untyped = l.untyped || !typed
	return l.deliver(o, err)
}

// deep delivers an item of JSON that was not checked.
func (l *lister) deep(raw []byte) error {
	o, typed, err := l.s.dec.deep(raw)
	l.untyped = l.untyped || !typed
	return l.deliver(o, err)
}

// message delivers an item of protobuf. Such a list has its type.
func (l *lister) message(raw []byte) error {
	o, err := l.s.dec.message(raw)
	l.untyped = true
	return l.deliver(o, err)
}

// deliver delivers an item, or reports the error of decoding it.
func (l *lister) deliver(o *object.Object, err error) error {
	if l.items++; l.items <= l.skip {
		return nil
	}
	l.count++
	if l.count%progressItems == 0 {
		l.opts.Progress(l.count, -1)
	}
	switch {
	case err == nil:
		return l.each(o)
	case isUnusable(err):
		l.opts.Invalid("", fmt.Errorf("%s: item %d of the list: %w", l.s, l.count, err))
		return nil
	}
	return err
}

// isUnusable reports whether err concerns one object and not the rest of the list.
func isUnusable(err error) bool {
	return errors.Is(err, object.ErrInvalid) || errors.Is(err, object.ErrNoMetadata) ||
		errors.Is(err, ErrWrongType) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrTooDeep)
}
