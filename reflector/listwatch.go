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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// ListWatchOptions are the settings of a [ListWatch]. Encode is required.
type ListWatchOptions struct {
	// Encode converts each object that the client returns.
	Encode Encode

	// WatchList makes lists by a watch with sendInitialEvents, which then continues as the
	// watch. If the server refuses it, and after a stream that broke, the list is made by
	// pages. It has no effect if the client declares that it does not support it.
	WatchList bool
}

// ListWatch is a [Source] over a client of client-go, for one reflector. Such a client decodes whole
// pages, so a list holds one page in memory; and a connection that breaks in the middle of a watch
// looks as if the server had ended the watch.
type ListWatch struct {
	opts   ListWatchOptions
	client cache.ListerWatcherWithContext

	unversioned atomic.Bool // see Unversioned

	probed string // type of the object that the newest probe returned; "" if it has none

	broke bool        // the newest watch-list broke
	kept  *stream     // the stream of the newest watch-list, until Watch takes it
	at    string      // the resourceVersion after which kept continues
	free  func() bool // detaches kept from the context that would stop it
}

var (
	_ Source   = (*ListWatch)(nil)
	_ Versions = (*ListWatch)(nil)
)

// NewListWatch returns a source over a client. If lw is a [cache.ListerWatcherWithContext] too, its
// calls get the context. A call of a client without contexts is abandoned when the context ends:
// the result is dropped.
func NewListWatch(lw cache.ListerWatcher, opts ListWatchOptions) *ListWatch {
	if LacksWatchList(lw) {
		opts.WatchList = false
	}
	return &ListWatch{opts: opts, client: cache.ToListerWatcherWithContext(lw)}
}

// LacksWatchList reports whether a client or ListerWatcher says that it can't list by a watch, as fakes do. client-go's
// reflector asks for the same method since 0.35.
func LacksWatchList(client any) bool {
	c, ok := client.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && c.IsWatchListSemanticsUnSupported()
}

// Unversioned reports whether the client was found to be a fake, whose objects may change without
// getting another resourceVersion: it returned a list without one (or with "0"), or one of
// apimachinery's fake watchers. No real server does either. It may be called at any time.
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
	if p.opts.Invalid == nil {
		p.opts.Invalid = func(string, error) {}
	}
	if p.opts.Deleted == nil {
		p.opts.Deleted = func(string) {}
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

// Watch implements [Source]. The events have the client's objects: a reflector encodes them as it reads them.
func (l *ListWatch) Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error) {
	if s := l.take(); s != nil {
		if l.at == rv {
			return s, nil
		}
		s.Stop()
	}
	return l.watch(ctx, metav1.ListOptions{ResourceVersion: rv}, timeout)
}

// Probe implements [Source]. It lists the newest state, not that at rv: a server that has not
// reached rv answers with Retry-After, and client-go then retries ten times by itself.
func (l *ListWatch) Probe(ctx context.Context, rv string) error {
	if rv == "" || l.Unversioned() {
		return nil // a fake client; no server lists without a resourceVersion
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

func (l *ListWatch) page(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return await(ctx, func() (runtime.Object, error) { return l.client.ListWithContext(ctx, opts) }, func(runtime.Object) {})
}

// emptyWatch is the type of the watch that rest.Request.Watch returns, without an error, if the
// connection ended before the answer. Only the type distinguishes it from a watch without events.
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
	return &stream{Interface: w, encode: l.opts.Encode}, nil
}

// await returns the result of call, or ctx's error as soon as ctx ends. A client that takes no
// context may return much later: its result then goes to drop.
func await[T any](ctx context.Context, call func() (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() { done <- r }()
		// A panic of the client crashes the program, or is an error if HandleCrash does not panic.
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

type lister struct {
	*ListWatch
	opts  upstream.ListOptions
	each  func(*object.Object) error
	count int64
}

func (p *lister) pages(ctx context.Context) (string, error) {
	opts := metav1.ListOptions{Limit: p.opts.PageSize}
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
		// WithAlloc copies each item: one that is kept in its Go form must not keep the whole page.
		if err := meta.EachListItemWithAlloc(list, p.item); err != nil {
			return "", err
		}
		if first {
			// All pages are of one state. If a server breaks that rule, a watch from the
			// resourceVersion of the first page, the oldest, misses nothing.
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
		opts.Continue = next
	}
}

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

func (p *lister) skip(key string, err error) {
	p.opts.Invalid(key, fmt.Errorf("item %d of the list: %w", p.count, err))
}

var (
	// errNoWatchList means that the server refuses to make a list by a watch.
	errNoWatchList = errors.New("no list by watch")

	// errHalfList means that a watch ended before the bookmark that ends the list.
	errHalfList = errors.New("the watch ended before it had sent the whole list")
)

// progressItems is the number of items of a watch-list between two calls of Progress.
const progressItems = 1000

// watchList makes the list with a watch, which it keeps for Watch to continue. On errNoWatchList no
// item was delivered. KEP-3157 has the contract.
func (p *lister) watchList(ctx context.Context) (rv string, err error) {
	yes := true
	s, err := p.watch(ctx, metav1.ListOptions{
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, SendInitialEvents: &yes,
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
			end, err := p.initial(s.event(e))
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

// initial delivers one event of a watch-list. end is the list's resourceVersion if the event
// completes the list, else "".
func (p *lister) initial(e watch.Event) (end string, err error) {
	switch o := e.Object.(type) {
	case *object.Object:
		switch e.Type {
		case watch.Bookmark:
			if v, _ := o.Field(initialEventsEnd); v == "true" {
				end = o.GetResourceVersion()
			}
		case watch.Added, watch.Modified:
			if p.count++; p.count%progressItems == 0 {
				p.opts.Progress(p.count, -1)
			}
			err = p.each(o)
		case watch.Deleted:
			p.opts.Deleted(o.Key())
		default:
			err = fmt.Errorf("%w: a %s event in a list", upstream.ErrBadList, e.Type)
		}
		return end, err
	case *upstream.InvalidObject:
		p.count++
		p.skip(o.Key, o.Err)
		if e.Type == watch.Deleted && o.Key != "" {
			p.opts.Deleted(o.Key)
		}
		return "", nil
	default:
		return "", apierrors.FromObject(e.Object)
	}
}

// keep stores a stream for Watch to continue. The stream stops with ctx, because Watch may never be
// called.
func (l *ListWatch) keep(ctx context.Context, s *stream, rv string) {
	l.kept, l.at, l.free = s, rv, context.AfterFunc(ctx, s.Stop)
}

// take removes and returns the kept stream; nil if there is none.
func (l *ListWatch) take() *stream {
	s := l.kept
	if s != nil {
		l.free()
	}
	l.kept = nil
	return s
}

// Current implements [Versions] with a list of one object of the newest state. If the client replaces
// the field selector with its own, and lists other objects, Current reports that there is no object.
func (l *ListWatch) Current(ctx context.Context, key, _ string) (now upstream.Current, err error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return now, err
	}
	one := fields.OneTermEqualSelector("metadata.name", name)
	if namespace != "" {
		one = fields.AndSelectors(one, fields.OneTermEqualSelector("metadata.namespace", namespace))
	}
	list, err := l.page(ctx, metav1.ListOptions{Limit: 1, FieldSelector: one.String()})
	if err != nil {
		return now, err
	}
	if m, err := meta.ListAccessor(list); err == nil {
		now.ListRV = m.GetResourceVersion()
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if m, err := meta.Accessor(item); err == nil && object.Key(m.GetNamespace(), m.GetName()) == key {
			now.Exists, now.UID, now.RV = true, string(m.GetUID()), m.GetResourceVersion()
		}
		return nil
	})
	return now, err
}

// itemType returns the type of the first item that has one; "" if none does.
func itemType(list runtime.Object) (name string) {
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if gvk := item.GetObjectKind().GroupVersionKind(); name == "" && !gvk.Empty() {
			name = typeName(gvk.GroupVersion().String(), gvk.Kind)
		}
		return nil
	})
	return name
}

// SameType returns a guard that compares the type of the first readable stored object with the type of
// the object that the newest probe returned. One ListerWatcher looks like another, so the stored
// objects may be of another resource, or of another version of it. If either has no type, as
// objects of typed clients don't, the guard passes.
func (l *ListWatch) SameType(c store.Collection) Guard {
	return func(context.Context) error {
		if l.probed == "" {
			return nil
		}
		v, err := c.View()
		if err != nil {
			return err
		}
		defer v.Close()
		for o, err := range v.Objects("", "") {
			if errors.As(err, new(*store.CorruptionError)) {
				continue
			}
			if err != nil {
				return err
			}
			stored := typeName(o.APIVersion(), o.Kind())
			if stored == "" || stored == l.probed {
				return nil
			}
			return newRelistError(store.ReasonScopeChanged, "the stored objects are of %s, the server's of %s", stored, l.probed)
		}
		return nil
	}
}
