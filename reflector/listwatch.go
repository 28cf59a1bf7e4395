package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/upstream"
)

// ListWatchOptions are the settings of a [ListWatch]. Encode is needed.
type ListWatchOptions struct {
	// Encode makes an object of what the client returned.
	Encode Encode

	// WatchList makes lists by a watch with sendInitialEvents, which then goes on as
	// the watch. Where the server refuses, and after a stream that broke, the list is
	// made by pages. It has no effect with a client that says it can't.
	WatchList bool

	// OnSkip is told of each item of a list that can't be used; nil for nobody.
	OnSkip func(error)
}

// ListWatch is a [Source] that asks a client of client-go: a typed one, a dynamic
// one, one of metadata, or one that returns [object.Object] itself.
//
// A client gives less away than upstream.Source does. It decodes whole pages, so
// a list holds one page in memory. And a connection that breaks in the middle of
// a watch looks as if the server had ended it.
//
// It is for one reflector.
type ListWatch struct {
	opts   ListWatchOptions
	client cache.ListerWatcherWithContext

	unversioned atomic.Bool // see Unversioned

	probed string // type of the object that the newest probe saw; "" where it does not tell

	broke bool        // the newest watch-list did
	kept  *stream     // what follows the newest watch-list, until Watch takes it
	at    string      // the resourceVersion that kept follows
	free  func() bool // unties kept from the context that it ends with
}

var _ Source = (*ListWatch)(nil)

// NewListWatch returns a source over a client. Where lw takes contexts (where it is
// a [cache.ListerWatcherWithContext] too) it is given them; a call of one that
// takes none is left behind when its context ends.
func NewListWatch(lw cache.ListerWatcher, opts ListWatchOptions) *ListWatch {
	if watchlist.DoesClientNotSupportWatchListSemantics(lw) {
		opts.WatchList = false
	}
	return &ListWatch{opts: opts, client: cache.ToListerWatcherWithContext(lw)}
}

// Unversioned reports whether the client was found to be a fake, whose objects may change
// without getting another resourceVersion: it returned a list without one (or with "0"), or
// one of apimachinery's fake watchers, which is what the fake clients of client-go return. No
// real server does either. It may be called at any time.
func (l *ListWatch) Unversioned() bool { return l.unversioned.Load() }

// List implements [Source].
func (l *ListWatch) List(ctx context.Context, opts upstream.ListOptions, each func(*object.Object) error) (string, error) {
	if s := l.take(); s != nil {
		s.Stop()
	}
	p := &lister{ListWatch: l, opts: opts, each: each}
	if p.opts.Progress == nil {
		p.opts.Progress = func(_, _ int64) {}
	}
	if l.opts.WatchList && !l.broke {
		rv, err := p.watchList(ctx)
		if !errors.Is(err, errNoWatchList) {
			return rv, err
		}
	}
	l.broke = false
	rv, err := p.pages(ctx)
	if err == nil && (rv == "" || rv == "0") {
		l.unversioned.Store(true)
	}
	return rv, err
}

// Watch implements [Source].
func (l *ListWatch) Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error) {
	if s := l.take(); s != nil {
		if l.at == rv {
			return s, nil
		}
		s.Stop()
	}
	return l.watch(ctx, metav1.ListOptions{ResourceVersion: rv}, timeout)
}

// Probe implements [Source]. It asks for the newest state, not for rv: a server that has not
// reached rv tells the client to ask again, which client-go does ten times by itself.
func (l *ListWatch) Probe(ctx context.Context, rv string) error {
	if rv == "" || l.Unversioned() {
		return nil // a client of a test; no server lists without one
	}
	list, err := l.page(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	l.probed = itemType(list)
	newest, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("%w: a %T: %w", upstream.ErrBadList, list, err)
	}
	at := newest.GetResourceVersion()
	if cmp, ok := object.CompareRV(at, rv); ok && at != "0" && cmp < 0 {
		return fmt.Errorf("%w, which is at %s", upstream.ErrAhead, at)
	}
	return nil
}

// page is one request for a list.
func (l *ListWatch) page(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return await(ctx, func() (runtime.Object, error) { return l.client.ListWithContext(ctx, opts) }, func(runtime.Object) {})
}

// emptyWatch is what rest.Request.Watch returns where the connection ended before
// the answer: no error, and nothing to tell it from a server that has nothing to
// say but its type.
var emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())

func (l *ListWatch) watch(ctx context.Context, opts metav1.ListOptions, timeout time.Duration) (*stream, error) {
	seconds := max(1, int64(timeout/time.Second))
	opts.TimeoutSeconds, opts.AllowWatchBookmarks = &seconds, true
	w, err := await(ctx, func() (watch.Interface, error) { return l.client.WatchWithContext(ctx, opts) }, watch.Interface.Stop)
	if err != nil {
		return nil, err
	}
	if reflect.TypeOf(w) == emptyWatch {
		return nil, io.ErrUnexpectedEOF
	}
	switch w.(type) {
	case *watch.FakeWatcher, *watch.RaceFreeFakeWatcher:
		l.unversioned.Store(true)
	}
	return newStream(w, l.opts.Encode), nil
}

// await returns what call returns, or ctx's error as soon as ctx ends: a client
// that takes no context may be long in coming back, and what it then brings is
// for drop.
func await[T any](ctx context.Context, call func() (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() { done <- r }()
		// A client that panics is the program's to crash with; else it is one that failed.
		defer utilruntime.HandleCrashWithContext(ctx, func(_ context.Context, p any) {
			r.err = fmt.Errorf("the client panicked: %v", p)
		})
		r.value, r.err = call()
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				drop(r.value)
			}
		}()
		var zero T
		return zero, ctx.Err()
	}
}

// lister is one call of List.
type lister struct {
	*ListWatch
	opts  upstream.ListOptions
	each  func(*object.Object) error
	count int64
}

// pages makes the list with list requests.
func (p *lister) pages(ctx context.Context) (string, error) {
	opts := metav1.ListOptions{Limit: p.opts.PageSize, ResourceVersion: p.opts.ResourceVersion}
	if opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
		// Without it the meaning would be "exactly" where there is a limit.
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	rv, first := "", true
	for {
		list, err := p.page(ctx, opts)
		if err != nil {
			return "", err
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return "", fmt.Errorf("%w: a %T: %w", upstream.ErrBadList, list, err)
		}
		if kind := list.GetObjectKind().GroupVersionKind(); kind.Kind == "Table" && kind.Group == metav1.GroupName {
			return "", fmt.Errorf("%w: the client returns a Table", upstream.ErrBadList)
		}
		// With memory of their own: one that is kept in its Go form must not keep the whole page.
		if err := meta.EachListItemWithAlloc(list, p.item); err != nil {
			return "", err
		}
		if first {
			// All pages are of one state. Should a server think otherwise, a watch from
			// the oldest one misses nothing.
			rv, first = m.GetResourceVersion(), false
		}
		remaining := int64(-1)
		next := m.GetContinue()
		if n := m.GetRemainingItemCount(); n != nil {
			remaining = *n
		} else if next == "" {
			remaining = 0
		}
		p.opts.Progress(p.count, remaining)
		switch next {
		case "":
			return rv, nil
		case opts.Continue:
			return "", fmt.Errorf("%w: the server sent one continue token twice", upstream.ErrBadList)
		}
		// The token holds the state; the server refuses another one beside it.
		opts = metav1.ListOptions{Limit: opts.Limit, Continue: next}
	}
}

// item delivers one item.
func (p *lister) item(item runtime.Object) error {
	p.count++
	o, err := p.ListWatch.opts.Encode(item)
	switch {
	case err == nil:
		return p.each(o)
	case unusableObject(err):
		p.skip(keyOf(item), err)
		return nil
	}
	return err
}

// skip tells of an item that can't be used.
func (p *lister) skip(key string, err error) {
	if p.ListWatch.opts.OnSkip != nil {
		p.ListWatch.opts.OnSkip(fmt.Errorf("item %d of the list: %w", p.count, err))
	}
	if key != "" && p.opts.Unusable != nil {
		p.opts.Unusable(key)
	}
}

// delete takes an item out of the list again.
func (p *lister) delete(key string) {
	if key != "" && p.opts.Deleted != nil {
		p.opts.Deleted(key)
	}
}

var (
	// errNoWatchList says that the server refuses to make a list by a watch.
	errNoWatchList = errors.New("no list by watch")

	// errHalfList says that a watch ended before the bookmark that ends the list.
	errHalfList = errors.New("the watch ended before it had sent the whole list")
)

// progressItems is after how many items of a watch-list its progress is told.
const progressItems = 1000

// watchList makes the list with a watch, and leaves the watch to go on. Where it is
// errNoWatchList nothing was delivered. Contract: KEP-3157.
func (p *lister) watchList(ctx context.Context) (rv string, err error) {
	yes := true
	s, err := p.watch(ctx, metav1.ListOptions{
		ResourceVersion: p.opts.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		SendInitialEvents: &yes,
	}, p.opts.WatchTimeout)
	switch {
	case err == nil:
	case ctx.Err() != nil, utilnet.IsConnectionRefused(err), apierrors.IsTooManyRequests(err):
		return "", err
	default:
		return "", fmt.Errorf("%w: %w", errNoWatchList, err)
	}
	defer func() {
		if err != nil {
			p.broke = true
			s.Stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case e, ok := <-s.ResultChan():
			if !ok {
				return "", errHalfList
			}
			end, err := p.initial(e)
			if err != nil {
				return "", err
			}
			if end != "" {
				p.opts.Progress(p.count, 0)
				p.keep(ctx, s, end)
				return end, nil
			}
		}
	}
}

// initial delivers one event of a watch-list. end is the list's resourceVersion
// once it is complete.
func (p *lister) initial(e watch.Event) (end string, err error) {
	switch o := e.Object.(type) {
	case *object.Object:
		if e.Type == watch.Bookmark {
			if v, _ := o.Field(initialEventsEnd); v == "true" {
				return o.GetResourceVersion(), nil
			}
			return "", nil
		}
		switch e.Type {
		case watch.Added, watch.Modified:
		case watch.Deleted:
			p.delete(o.Key())
			return "", nil
		default:
			return "", fmt.Errorf("%w: a %s event in a list", upstream.ErrBadList, e.Type)
		}
		if p.count++; p.count%progressItems == 0 {
			p.opts.Progress(p.count, -1)
		}
		return "", p.each(o)
	case *upstream.Unusable:
		p.count++
		p.skip(o.Key, o.Err)
		if e.Type == watch.Deleted {
			p.delete(o.Key)
		}
		return "", nil
	default:
		return "", apierrors.FromObject(e.Object)
	}
}

// keep leaves a stream for Watch to go on with. It ends with ctx, for Watch may
// never come.
func (l *ListWatch) keep(ctx context.Context, s *stream, rv string) {
	l.kept, l.at, l.free = s, rv, context.AfterFunc(ctx, s.Stop)
}

// take returns the stream that was kept, nil where there is none.
func (l *ListWatch) take() *stream {
	s := l.kept
	if s != nil {
		l.free()
	}
	l.kept = nil
	return s
}
