package informer

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/snapcache/snapcache/object"
)

// protobufCodec stores Go types as Kubernetes' protobuf.
type protobufCodec struct {
	*typedCodec
	serializer *protobuf.Serializer
}

// NewProtobufCodec returns the codec that stores objects like example, a Go type of scheme, as
// protobuf: shorter than JSON and decoded in a fraction of the time. Only programs that have the
// type can read it. It fails for a type without a protobuf form, such as those of most custom
// resources. The codec also decodes objects that were stored as JSON.
func NewProtobufCodec(example runtime.Object, scheme *runtime.Scheme) (Codec, error) {
	if scheme == nil {
		return nil, errors.New("protobuf codec: there is no scheme")
	}
	if _, err := formOf(example); err != nil {
		return nil, fmt.Errorf("protobuf codec: %w", err)
	}
	kinds, _, err := scheme.ObjectKinds(example)
	if err != nil {
		return nil, fmt.Errorf("protobuf codec: %w", err)
	}
	c := protobufCodec{newTypedCodec(example, scheme), protobuf.NewSerializer(scheme, scheme)}
	// A type fails only when it is encoded, so the codec tries one object.
	try := reflect.New(c.typ).Interface().(runtime.Object)
	m, err := meta.Accessor(try)
	if err != nil {
		return nil, fmt.Errorf("protobuf codec of %s: %w", kinds[0], err)
	}
	m.SetNamespace("a")
	m.SetName("b")
	o, err := c.Encode(try)
	if err == nil {
		_, err = c.Decode(o)
	}
	if err != nil {
		return nil, fmt.Errorf("protobuf codec of %s: %w", kinds[0], err)
	}
	return c, nil
}

func (protobufCodec) Encoding() string { return "protobuf" }

func (c protobufCodec) Encode(obj runtime.Object) (*object.Object, error) {
	if o, ok := obj.(*object.Object); ok {
		return o, nil
	}
	if reflect.TypeOf(obj) != reflect.PointerTo(c.typ) {
		return nil, fmt.Errorf("encode a %T: expected a %s", obj, c.typ)
	}
	if obj.GetObjectKind().GroupVersionKind().Empty() {
		// obj belongs to the caller and must not be changed: a shallow copy has the kind.
		typed := reflect.New(c.typ)
		typed.Elem().Set(reflect.ValueOf(obj).Elem())
		obj = typed.Interface().(runtime.Object)
		obj.GetObjectKind().SetGroupVersionKind(c.gvk)
	}
	var b bytes.Buffer
	if err := c.serializer.Encode(obj, &b); err != nil {
		return nil, fmt.Errorf("encode a %T: %w", obj, err)
	}
	o, err := object.FromValid(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", obj, err)
	}
	if m, err := meta.Accessor(obj); err != nil || object.Key(m.GetNamespace(), m.GetName()) != o.Key() {
		return nil, fmt.Errorf("encode a %T: its protobuf form has the metadata elsewhere than Kubernetes' types", obj)
	}
	return o, nil
}
