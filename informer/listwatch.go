package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/upstream"
)

// listWatch is client-go's ListerWatcher as a source.
type listWatch struct {
	lw      cache.ListerWatcherWithContext
	example runtime.Object
	encode  func(runtime.Object) (*object.Object, error)
}

var _ reflector.Source = (*listWatch)(nil)

// List implements [reflector.Source].
func (s *listWatch) List(ctx context.Context, opts upstream.ListOptions, each func(*object.Object) error) (string, error) {
	var count int64
	rv, next := "", ""
	for {
		list, err := s.list(ctx, metav1.ListOptions{ResourceVersion: opts.ResourceVersion, Limit: opts.PageSize, Continue: next})
		if err != nil {
			return "", err
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return "", fmt.Errorf("%w: %w", upstream.ErrBadList, err)
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			o, err := s.encode(item)
			if err != nil {
				return err
			}
			count++
			return each(o)
		})
		if err != nil {
			return "", err
		}
		if rv == "" {
			rv = m.GetResourceVersion()
		}
		if opts.Progress != nil {
			remaining := int64(-1)
			if n := m.GetRemainingItemCount(); n != nil {
				remaining = *n
			}
			opts.Progress(count, remaining)
		}
		if m.GetContinue() == "" {
			return rv, nil
		}
		if m.GetContinue() == next {
			return "", fmt.Errorf("%w: one continue token came twice", upstream.ErrBadList)
		}
		next = m.GetContinue()
	}
}

// list is one request. One that takes no context is left behind when ctx ends.
func (s *listWatch) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	type answer struct {
		list runtime.Object
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		list, err := s.lw.ListWithContext(ctx, opts)
		answers <- answer{list, err}
	}()
	select {
	case a := <-answers:
		return a.list, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Watch implements [reflector.Source].
func (s *listWatch) Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error) {
	seconds := int64(timeout / time.Second)
	w, err := s.lw.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: rv, TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
	if err != nil {
		return nil, err
	}
	e := &encodedWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go e.run(s.event)
	return e, nil
}

// Probe implements [reflector.Source].
func (s *listWatch) Probe(ctx context.Context, rv string) error {
	if rv == "" {
		return nil // there is nothing to be behind of
	}
	_, err := s.list(ctx, metav1.ListOptions{
		Limit: 1, ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		apierrors.IsTimeout(err) && strings.Contains(err.Error(), "Too large resource version") {
		return fmt.Errorf("%w: %w", upstream.ErrAhead, err)
	}
	return err
}

// event encodes the object of an event.
func (s *listWatch) event(e watch.Event) watch.Event {
	var err error
	switch e.Type {
	case watch.Error:
		return e
	case watch.Bookmark:
		e.Object, err = bookmark(e.Object)
	default:
		if err = s.expected(e.Object); err == nil {
			e.Object, err = s.encode(e.Object)
		}
	}
	if err != nil {
		e.Object = &upstream.Unusable{Err: err}
	}
	return e
}

// bookmark is what is left of a bookmark's object.
func bookmark(obj runtime.Object) (runtime.Object, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	return object.ParseBookmark(fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q}}`, m.GetResourceVersion()))
}

// expected refuses an object of another type than the example's.
func (s *listWatch) expected(obj runtime.Object) error {
	if obj == nil {
		return errors.New("an event without an object")
	}
	_, sent := obj.(*object.Object)
	_, wanted := s.example.(*object.Object)
	if sent || wanted || s.example == nil {
		return nil // JSON is of any type
	}
	if reflect.TypeOf(obj) != reflect.TypeOf(s.example) {
		return fmt.Errorf("%w: expected a %T, the watch sent a %T", upstream.ErrWrongType, s.example, obj)
	}
	want, got := s.example.GetObjectKind().GroupVersionKind(), obj.GetObjectKind().GroupVersionKind()
	if _, ok := obj.(runtime.Unstructured); ok && !want.Empty() && got != want {
		return fmt.Errorf("%w: expected a %s, the watch sent a %s", upstream.ErrWrongType, want, got)
	}
	return nil
}

// encodedWatch is a watch whose objects are encoded on the way.
type encodedWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
}

func (w *encodedWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop ends the watch. It is called once.
func (w *encodedWatch) Stop() {
	close(w.stopped)
	w.Interface.Stop()
}

func (w *encodedWatch) run(encode func(watch.Event) watch.Event) {
	defer close(w.events)
	for {
		select {
		case <-w.stopped:
			return
		case e, ok := <-w.Interface.ResultChan():
			if !ok {
				return
			}
			select {
			case w.events <- encode(e):
			case <-w.stopped:
				return
			}
		}
	}
}
