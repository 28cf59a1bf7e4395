package informer

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/snapcache/snapcache/object"
)

// Codec encodes objects for the store and decodes them. It is safe for concurrent use.
type Codec interface {
	// Encoding returns the name of the form in which objects are stored; empty is their JSON. It is
	// part of a collection's scope: if it changes, the objects are listed again. Until then Decode
	// may get objects in the previous form.
	Encoding() string

	// Encode returns the stored form of obj, which shares no memory with obj. It does not change
	// obj.
	Encode(obj runtime.Object) (*object.Object, error)

	// Decode returns the decoded object, as a new copy. Only a codec whose objects can't be changed
	// may return o itself.
	Decode(o *object.Object) (runtime.Object, error)
}

// NewCodec returns the codec for objects like example:
//
//   - *object.Object: as it is;
//   - *unstructured.Unstructured: its JSON;
//   - a Go type: its JSON, read back as API clients read it (names are case sensitive). If scheme,
//     which may be nil, has the type, its apiVersion and kind are stored, and removed again on the
//     way out, since typed clients leave them empty too.
func NewCodec(example runtime.Object, scheme *runtime.Scheme) Codec {
	switch example.(type) {
	case *object.Object:
		return rawCodec{}
	case runtime.Unstructured:
		return unstructuredCodec{gvk: kindOf(example, nil)}
	}
	return newTypedCodec(example, scheme)
}

func newTypedCodec(example runtime.Object, scheme *runtime.Scheme) *typedCodec {
	c := &typedCodec{typ: reflect.TypeOf(example).Elem(), gvk: kindOf(example, scheme)}
	c.pointer = reflect.PointerTo(c.typ)
	c.json = func(obj runtime.Object) ([]byte, error) { return encodeJSON(obj, c.gvk) }
	c.apiVersion, c.kind = c.gvk.ToAPIVersionAndKind()
	_, metadata := example.(*metav1.PartialObjectMetadata)
	c.bare = !metadata && !c.gvk.Empty() && example.GetObjectKind().GroupVersionKind().Empty()
	return c
}

// kindOf returns the kind of an object from scheme, or else from the object itself; empty if
// neither has it.
func kindOf(o runtime.Object, scheme *runtime.Scheme) schema.GroupVersionKind {
	if scheme != nil {
		if kinds, _, err := scheme.ObjectKinds(o); err == nil && len(kinds) > 0 {
			return kinds[0]
		}
	}
	return o.GetObjectKind().GroupVersionKind()
}

// jsonEncoding is embedded by the codecs that store JSON.
type jsonEncoding struct{}

func (jsonEncoding) Encoding() string { return "" }

// rawCodec is the codec of programs that read objects as JSON.
type rawCodec struct{ jsonEncoding }

func (rawCodec) Encode(obj runtime.Object) (*object.Object, error) {
	return encode(obj, schema.GroupVersionKind{})
}

func (rawCodec) Decode(o *object.Object) (runtime.Object, error) { return o, nil }

type unstructuredCodec struct {
	jsonEncoding
	gvk schema.GroupVersionKind
}

func (c unstructuredCodec) Encode(obj runtime.Object) (*object.Object, error) {
	return encode(obj, c.gvk)
}

func (c unstructuredCodec) Decode(o *object.Object) (runtime.Object, error) {
	if o.Protobuf() {
		return nil, fmt.Errorf("decode %s: it is stored as protobuf", o.Key())
	}
	u := &unstructured.Unstructured{}
	// Not UnmarshalJSON, which requires a kind: an object may be stored without one.
	if err := utiljson.Unmarshal(o.Raw(), &u.Object); err != nil {
		return nil, fmt.Errorf("decode %s: %w", o.Key(), err)
	}
	return u, nil
}

type typedCodec struct {
	jsonEncoding
	typ     reflect.Type
	pointer reflect.Type // pointer to typ
	gvk     schema.GroupVersionKind
	bare    bool // objects are handed out without apiVersion and kind

	apiVersion, kind string // the strings of gvk

	json func(runtime.Object) ([]byte, error) // for objects that are encoded when their bytes are needed
}

func (c *typedCodec) Encode(obj runtime.Object) (*object.Object, error) { return encode(obj, c.gvk) }

// share returns obj, a pointer to typ, as an object with obj as its Go form. It encodes obj only if
// the size can't be known otherwise.
func (c *typedCodec) share(obj runtime.Object) (*object.Object, error) {
	apiVersion, kind := c.apiVersion, c.kind
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		apiVersion, kind = gvk.ToAPIVersionAndKind()
		if c.bare {
			obj = obj.DeepCopyObject()
			obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
	}
	if v, ok := obj.(object.Go); ok {
		return object.FromGo(v, apiVersion, kind, c.json)
	}
	o, err := c.Encode(obj)
	if err != nil {
		return nil, err
	}
	return o.WithGo(obj), nil
}

// handedOut returns obj, a pointer to typ that was encoded as o, as Decode returns it: with the
// apiVersion and kind of o, or without. It is a copy if obj differs.
func (c *typedCodec) handedOut(obj runtime.Object, o *object.Object) runtime.Object {
	var gvk schema.GroupVersionKind
	if !c.bare {
		gvk = schema.FromAPIVersionAndKind(o.APIVersion(), o.Kind())
	}
	if obj.GetObjectKind().GroupVersionKind() == gvk {
		return obj
	}
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}

func (c *typedCodec) Decode(o *object.Object) (runtime.Object, error) {
	v := reflect.New(c.typ).Interface().(runtime.Object)
	if o.Protobuf() {
		if err := o.Into(v); err != nil {
			return nil, err
		}
		v.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(o.APIVersion(), o.Kind()))
	} else if err := utiljson.Unmarshal(o.Raw(), v); err != nil {
		return nil, fmt.Errorf("decode %s as a %s: %w", o.Key(), c.typ, err)
	}
	if c.bare {
		v.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return v, nil
}

// encode returns an object as JSON, with apiVersion and kind of gvk if the object has none.
func encode(obj runtime.Object, gvk schema.GroupVersionKind) (*object.Object, error) {
	if o, ok := obj.(*object.Object); ok {
		return o, nil
	}
	raw, err := encodeJSON(obj, gvk)
	if err != nil {
		return nil, err
	}
	o, err := object.FromValid(raw)
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", obj, err)
	}
	return o, nil
}

func encodeJSON(obj runtime.Object, gvk schema.GroupVersionKind) ([]byte, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", obj, err)
	}
	if !gvk.Empty() {
		apiVersion, kind := gvk.ToAPIVersionAndKind()
		raw = object.WithType(raw, apiVersion, kind)
	}
	return raw, nil
}
