package informer

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/object"
)

// protobufCodec stores Go types as Kubernetes' protobuf.
type protobufCodec struct {
	*typedCodec
	envelope object.Envelope // of gvk
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
// read it. It fails for a type without a protobuf form, such as those of most custom resources. If
// scheme, which may be nil, has the type, apiVersion and kind are stored. The codec also decodes
// objects that were stored as JSON.
func NewProtobufCodec(example runtime.Object, scheme *runtime.Scheme) (Codec, error) {
	if _, err := formOf(example); err != nil {
		return nil, fmt.Errorf("protobuf codec: %w", err)
	}
	c := protobufCodec{typedCodec: newTypedCodec(example, scheme), encoding: "protobuf"}
	c.envelope = object.NewEnvelope(c.apiVersion, c.kind)
	// A type may have its metadata elsewhere, so the codec tries one object.
	try := reflect.New(c.typ).Interface().(runtime.Object)
	m, err := meta.Accessor(try)
	if err != nil {
		return nil, fmt.Errorf("protobuf codec of %T: %w", try, err)
	}
	m.SetNamespace("a")
	m.SetName("b")
	o, err := c.Encode(try)
	if err == nil {
		_, err = c.Decode(o)
	}
	if err != nil {
		return nil, fmt.Errorf("protobuf codec of %T: %w", try, err)
	}
	return c, nil
}

// defaultCodec returns the codec of a durable store: protobuf for Go types that have it, else that
// of [NewCodec].
//
// Its encoding is that of JSON, so that a collection that was stored as JSON is used as it is: it
// then has objects in both forms, each of which this codec reads.
func defaultCodec(example runtime.Object, scheme *runtime.Scheme) Codec {
	json := NewCodec(example, scheme)
	if _, typed := json.(*typedCodec); !typed {
		return json
	}
	c, err := NewProtobufCodec(example, scheme)
	if packed, ok := c.(protobufCodec); ok && err == nil {
		packed.encoding = json.Encoding()
		return packed
	}
	return json
}

func (c protobufCodec) Encoding() string { return c.encoding }

func (c protobufCodec) Encode(obj runtime.Object) (*object.Object, error) {
	if o, ok := obj.(*object.Object); ok {
		return o, nil
	}
	m, ok := obj.(message)
	if !ok || reflect.TypeOf(obj) != c.pointer {
		return nil, fmt.Errorf("encode a %T: expected a %s with a protobuf form", obj, c.typ)
	}
	envelope := c.envelope
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
