package informer

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
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

// NewCodec returns the codec that stores objects like example, an *object.Object, a tree or a Go type, as
// JSON. Of a Go type it is read back as API clients read it (names are case sensitive). If scheme,
// which may be nil, has the type, its apiVersion and kind are stored, and removed again on the way out,
// since typed clients leave them empty too.
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
	apiVersion, kind := c.gvk.ToAPIVersionAndKind()
	c.json = &object.GoType{APIVersion: apiVersion, Kind: kind, Encode: func(obj runtime.Object) ([]byte, error) { return encodeJSON(obj, c.gvk) }}
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

// unstructuredCodec is the codec of trees.
type unstructuredCodec struct{ gvk schema.GroupVersionKind }

func (unstructuredCodec) Encoding() string { return "" }

func (c unstructuredCodec) Encode(obj runtime.Object) (*object.Object, error) {
	return encode(obj, c.gvk)
}

func (unstructuredCodec) Decode(o *object.Object) (runtime.Object, error) {
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

// rawCodec is the codec of programs that read objects as JSON.
type rawCodec struct{ unstructuredCodec }

func (rawCodec) Decode(o *object.Object) (runtime.Object, error) { return o, nil }

// typedCodec is the codec of a Go type, as JSON or, with an envelope, as Kubernetes' protobuf.
type typedCodec struct {
	typ     reflect.Type
	pointer reflect.Type // pointer to typ
	gvk     schema.GroupVersionKind
	bare    bool // objects are handed out without apiVersion and kind

	json *object.GoType // of gvk, for objects that are encoded when their bytes are needed

	envelope *object.Envelope // of gvk; nil for JSON
	encoding string
}

// message is a Go type with a protobuf form, as the API's types are generated.
type message interface {
	runtime.Object
	Size() int
	MarshalToSizedBuffer(to []byte) (int, error)
	Unmarshal(from []byte) error
}

// NewProtobufCodec returns the codec that stores objects like example, a Go type, as protobuf:
// shorter than JSON and decoded in a fraction of the time. Only programs that have the type can
// read it. It fails for a type without a protobuf form, such as most custom resources'. If
// scheme, which may be nil, has the type, apiVersion and kind are stored. The codec also decodes
// objects that were stored as JSON.
func NewProtobufCodec(example runtime.Object, scheme *runtime.Scheme) (Codec, error) {
	c, err := newProtobufCodec(example, scheme)
	if err != nil {
		return nil, fmt.Errorf("protobuf codec of %T: %w", example, err)
	}
	c.encoding = "protobuf"
	return c, nil
}

// defaultCodec returns the codec of a durable store: protobuf for Go types that have it, else
// [NewCodec]'s.
//
// Its encoding has the name of JSON's, so that a collection that was stored as JSON is used as it is: it
// then has objects in both forms, each of which this codec reads.
func defaultCodec(example runtime.Object, scheme *runtime.Scheme) Codec {
	if c, err := newProtobufCodec(example, scheme); err == nil {
		return c
	}
	return NewCodec(example, scheme)
}

func newProtobufCodec(example runtime.Object, scheme *runtime.Scheme) (*typedCodec, error) {
	if _, err := formOf(example); err != nil {
		return nil, err
	}
	c := newTypedCodec(example, scheme)
	envelope := object.NewEnvelope(c.gvk.ToAPIVersionAndKind())
	c.envelope = &envelope
	// A type may have its metadata elsewhere, so the codec tries one object.
	try := reflect.New(c.typ).Interface().(runtime.Object)
	m, err := meta.Accessor(try)
	if err != nil {
		return nil, err
	}
	m.SetNamespace("a")
	m.SetName("b")
	o, err := c.Encode(try)
	if err == nil {
		_, err = c.Decode(o)
	}
	return c, err
}

// packed reports whether a codec stores protobuf.
func packed(codec Codec) bool {
	c, ok := codec.(*typedCodec)
	return ok && c.envelope != nil
}

func (c *typedCodec) Encoding() string { return c.encoding }

func (c *typedCodec) Encode(obj runtime.Object) (*object.Object, error) {
	if c.envelope == nil {
		return encode(obj, c.gvk)
	}
	if o, ok := obj.(*object.Object); ok {
		return o, nil
	}
	m, ok := obj.(message)
	if !ok || reflect.TypeOf(obj) != c.pointer {
		return nil, fmt.Errorf("encode a %T: expected a %s with a protobuf form", obj, c.typ)
	}
	envelope := *c.envelope
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() && gvk != c.gvk {
		envelope = object.NewEnvelope(gvk.ToAPIVersionAndKind())
	}
	raw, body := envelope.New(m.Size())
	n, err := m.MarshalToSizedBuffer(body)
	if err == nil && n != len(body) {
		err = fmt.Errorf("%d bytes instead of %d", n, len(body))
	}
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", obj, err)
	}
	o, err := object.FromValid(raw)
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", obj, err)
	}
	if a, err := meta.Accessor(obj); err != nil || object.Key(a.GetNamespace(), a.GetName()) != o.Key() {
		return nil, fmt.Errorf("encode a %T: its protobuf form has the metadata elsewhere than Kubernetes' types", obj)
	}
	return o, nil
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
