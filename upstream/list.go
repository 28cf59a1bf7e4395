package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/object"
)

// ListOptions say how to list.
type ListOptions struct {
	// PageSize is the number of objects to ask for at once; 0 for all in one body.
	// A server may send more, and does from its cache with ResourceVersion "0".
	PageSize int64

	// ResourceVersion is the state that is asked for: "" for the newest, "0" for
	// any that the server has at hand (which may be older than one seen before),
	// else one at least as new as that.
	ResourceVersion string

	// Progress is told, now and then and at the end of each page, how many items
	// have come and how many are still to come, -1 where that is not known. It is
	// called from within [Source.List]; nil for nobody.
	Progress func(count, remaining int64)

	// Unusable is told the key of an item that is there and can't be used, where the
	// source can tell; nil for nobody.
	Unusable func(key string)

	// Deleted receives the key of an item that was delivered, or that is unusable, and
	// does not belong to the list any more: a list that is made by a watch goes on
	// changing until it is complete. Only such a source calls it.
	Deleted func(key string)

	// WatchTimeout is how long a watch that makes the list may last, with what follows the
	// list. A source that lists by pages has no use for it.
	WatchTimeout time.Duration
}

const (
	// pageRetries is how often a later page is asked for again where the server
	// names the time to wait (429, 503): giving up would throw away the pages
	// before. Any other failure, and the first page, is the caller's to decide on.
	pageRetries = 5

	// progressItems is after how many items Progress is told within a page.
	progressItems = 1000
)

// List calls each with every object and returns the resourceVersion that they
// are complete at. It reads from the network as fast as each returns, holding one
// object at a time. Objects come with apiVersion and kind, pruned.
//
// After an error the objects that were delivered must be thrown away. A body that
// is not one complete list of the resource is [ErrBadList]; an error of each is
// returned wrapped; errors of the API are as the server sent them, so a 410 in
// the middle of the pages satisfies [apierrors.IsResourceExpired].
//
// [apierrors.IsResourceExpired]: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/errors#IsResourceExpired
func (s *Source) List(ctx context.Context, opts ListOptions, each func(*object.Object) error) (string, error) {
	l := &lister{s: s, opts: opts, each: each}
	if l.opts.Progress == nil {
		l.opts.Progress = func(_, _ int64) {}
	}
	rv, next := "", ""
	for {
		p, err := l.page(ctx, next)
		if err != nil {
			return "", fmt.Errorf("list %s: %w", s, s.scoped(err))
		}
		if rv == "" {
			// All pages are of one state. Should a server think otherwise, a watch from
			// the oldest one misses nothing.
			rv = p.rv
		}
		l.opts.Progress(l.count, p.remaining)
		if p.next == "" {
			return rv, nil
		}
		if p.next == next {
			return "", fmt.Errorf("list %s: %w: the server sent one continue token twice", s, ErrBadList)
		}
		next = p.next
	}
}

// lister is one call of List.
type lister struct {
	s       *Source
	opts    ListOptions
	each    func(*object.Object) error
	count   int64
	untyped bool // an item came without a type of its own
}

func (l *lister) page(ctx context.Context, next string) (page, error) {
	r, err := l.s.request()
	if err != nil {
		return page{}, err
	}
	r.SetHeader("Accept-Encoding", "gzip")
	if l.opts.PageSize > 0 {
		r.Param("limit", strconv.FormatInt(l.opts.PageSize, 10))
	}
	switch rv := l.opts.ResourceVersion; {
	case next != "":
		// The token holds the state; the server refuses another one beside it.
		r.Param("continue", next).MaxRetries(pageRetries)
	case rv == "0":
		r.Param("resourceVersion", rv)
	case rv != "":
		// Without the match parameter it would mean "exactly" where there is a limit.
		r.Param("resourceVersion", rv).Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	body, err := r.Stream(ctx)
	if err != nil {
		return page{}, err
	}
	defer body.Close()
	return l.read(body)
}

// read delivers one body's items and checks that it is a list of the resource.
func (l *lister) read(body io.Reader) (page, error) {
	p, err := parsePage(body, l.item)
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

// checkType holds the list's type against the resource's. Items of built-in
// resources don't say what they are, so there the list's kind is all there is to
// go by. A custom resource can name its list as it likes (spec.names.listKind,
// which discovery does not tell), but its group has a dot and its items say what
// they are.
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

func (l *lister) item(raw []byte) error {
	l.count++
	if l.count%progressItems == 0 {
		l.opts.Progress(l.count, -1)
	}
	o, typed, err := l.s.dec.item(raw)
	l.untyped = l.untyped || !typed
	switch {
	case err == nil:
		return l.each(o)
	case isUnusable(err):
		if l.s.opts.OnSkip != nil {
			l.s.opts.OnSkip(fmt.Errorf("%s: item %d of the list: %w", l.s, l.count, err))
		}
		return nil
	}
	return err
}

// isUnusable reports whether err is about one object and says nothing of the
// others.
func isUnusable(err error) bool {
	return errors.Is(err, object.ErrInvalid) || errors.Is(err, object.ErrNoMetadata) ||
		errors.Is(err, ErrWrongType) || errors.Is(err, ErrTooLarge)
}
