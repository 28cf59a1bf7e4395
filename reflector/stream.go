package reflector

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/upstream"
)

// stream is a client's watch, whose events have the client's objects. Its reader converts each with event: a goroutine
// between the two would cost each event a wait.
type stream struct {
	watch.Interface
	encode Encode
	stop   sync.Once
}

// Stop implements [watch.Interface]. It may be called again, whatever the client's does then.
func (s *stream) Stop() { s.stop.Do(s.Interface.Stop) }

// event returns an event of the client with its object encoded, as upstream.Source.Watch documents it.
func (s *stream) event(e watch.Event) watch.Event {
	switch e.Type {
	case watch.Error:
		return e
	case watch.Bookmark:
		e.Object = bookmark(e.Object)
		return e
	}
	if _, ok := e.Object.(*metav1.Status); ok {
		return e
	}
	o, err := s.encode(e.Object)
	switch {
	case err == nil:
		e.Object = o
	case unusableObject(err):
		e.Object = &upstream.InvalidObject{Err: err, Key: keyOf(e.Object)}
	default:
		// Later objects can't be encoded either. To skip them all would look like a cluster
		// without changes, so the watch ends.
		e = watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}
	}
	return e
}

// initialEventsEnd is the path of the annotation of the bookmark that ends the list
// in a watch-list.
const initialEventsEnd = `metadata.annotations.k8s\.io/initial-events-end`

// bookmark converts the object of a BOOKMARK event. Only its resourceVersion and the annotation of
// initialEventsEnd can be relied on.
func bookmark(obj runtime.Object) runtime.Object {
	if o, ok := obj.(*object.Object); ok {
		return o
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return &upstream.InvalidObject{Err: fmt.Errorf("%w: %w", object.ErrNoMetadata, err)}
	}
	raw, err := json.Marshal(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: m.GetResourceVersion(), Annotations: m.GetAnnotations(),
	}})
	if err != nil {
		return &upstream.InvalidObject{Err: err}
	}
	o, err := object.ParseBookmark(raw)
	if err != nil {
		return &upstream.InvalidObject{Err: err}
	}
	return o
}

// keyOf returns the key of a client's object; "" if it has none.
func keyOf(obj runtime.Object) string {
	key, err := cache.MetaNamespaceKeyFunc(obj)
	if err != nil {
		return ""
	}
	return key
}

// Encode converts an object of a client, as the codecs of package informer do. After an error that wraps [object.ErrInvalid] or
// [object.ErrNoMetadata] that one object is skipped; any other error ends the list or the watch.
type Encode func(runtime.Object) (*object.Object, error)

// unusableObject reports whether an error concerns one object only, and not all of a list or watch.
func unusableObject(err error) bool {
	return errors.Is(err, object.ErrInvalid) || errors.Is(err, object.ErrNoMetadata)
}
