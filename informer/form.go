package informer

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/upstream"
)

// form is the Go type of an informer's objects and, for trees, their kind. The example that they are
// taken from is not kept: the program may write to it at any time.
type form struct {
	typ reflect.Type
	gvk schema.GroupVersionKind // of the example; only compared for trees
}

// errNoExample means that an informer was made with a nil example.
var errNoExample = errors.New("there is no example of the objects: pass a pointer to an object, such as &corev1.Pod{}")

// formOf returns the form of objects like example. It fails if the example is no pointer, or nil.
func formOf(example runtime.Object) (form, error) {
	v := reflect.ValueOf(example)
	switch {
	case !v.IsValid():
		return form{}, errNoExample
	case v.Kind() != reflect.Pointer:
		return form{}, fmt.Errorf("the example is a %T, which is not a pointer", example)
	case v.IsNil():
		return form{}, fmt.Errorf("the example is a nil %T: %w", example, errNoExample)
	}
	return form{typ: v.Type(), gvk: example.GetObjectKind().GroupVersionKind()}, nil
}

// rawType is the type of stored objects, which have any kind.
var rawType = reflect.TypeFor[*object.Object]()

// takes returns an error if obj is not of this form.
func (f form) takes(obj runtime.Object) error {
	if obj == nil {
		return errors.New("an event without an object")
	}
	sent := reflect.TypeOf(obj)
	switch {
	case sent == rawType, f.typ == rawType:
		return nil
	case sent != f.typ:
		return fmt.Errorf("%w: expected a %s, the server sent a %s", upstream.ErrWrongType, f.typ, sent)
	}
	got := obj.GetObjectKind().GroupVersionKind()
	if _, tree := obj.(runtime.Unstructured); tree && !f.gvk.Empty() && got != f.gvk {
		return fmt.Errorf("%w: expected a %s, the server sent a %s", upstream.ErrWrongType, f.gvk, got)
	}
	return nil
}

// errTransformedType means that a transform returns objects of another type than the informer's. A
// durable store has to decode its objects before any transform has run.
var errTransformedType = errors.New("the transform returns objects of another type than the informer's")

// transformed returns the result of a transform as an object, or an error if its type is not this
// form's.
func (f form) transformed(out any) (runtime.Object, error) {
	if v := reflect.ValueOf(out); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("transform: it returned no object")
	}
	o, ok := out.(runtime.Object)
	if ok && (f.typ == rawType || reflect.TypeOf(out) == f.typ || reflect.TypeOf(out) == rawType) {
		return o, nil
	}
	return nil, fmt.Errorf("%w: a %T, and the informer was made with a %s: return that type, or make the informer with an example of the other one "+
		"and a client that lists it, such as &metav1.PartialObjectMetadata{} and a metadata client", errTransformedType, out, f.typ)
}
