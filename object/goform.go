package object

import (
	"encoding/json"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Go is an object in its Go form that knows how long it would be as protobuf, as the API's own
// types do.
type Go interface {
	runtime.Object
	metav1.Object
	Size() int
}

// goForm is the Go form of an object.
type goForm struct {
	value runtime.Object

	// The rest is for an object that came in this form and is encoded when its bytes are first
	// asked for.
	encode Encoder
	once   sync.Once
	raw    []byte
}

// Encoder encodes objects that came in their Go form.
type Encoder interface {
	// EncodeGo returns the JSON of what FromGo was given.
	EncodeGo(runtime.Object) ([]byte, error)
}

// FromGo returns the object that v is, which must not be changed from then on. It has no bytes
// until they are asked for; then encode makes them, once. Errors wrap [ErrInvalid] or
// [ErrNoMetadata].
func FromGo(v Go, apiVersion, kind string, encode Encoder) (*Object, error) {
	both := &struct {
		Object
		goForm
	}{
		Object{
			apiVersion: apiVersion, kind: kind, namespace: v.GetNamespace(), name: v.GetName(),
			uid: string(v.GetUID()), rv: v.GetResourceVersion(), labels: v.GetLabels(),
		},
		goForm{value: v, encode: encode},
	}
	o := &both.Object
	o.form = &both.goForm
	if err := o.check(); err != nil {
		return nil, err
	}
	return o, nil
}

// WithGo returns o with v as its Go form, which must not be changed from then on.
func (o *Object) WithGo(v runtime.Object) *Object {
	with := *o
	with.raw, with.form = o.Raw(), &goForm{value: v}
	return &with
}

// Go returns the object in its Go form, which the caller must not change; nil if it came without.
func (o *Object) Go() runtime.Object {
	if o.form == nil {
		return nil
	}
	return o.form.value
}

// Encoded reports whether the object came with its bytes. Those of an object that came in its Go
// form are made when they are first asked for.
func (o *Object) Encoded() bool { return o.lazy() == nil }

// lazy returns the form that the bytes are to be made from; nil for an object that has them.
func (o *Object) lazy() *goForm {
	if o.form == nil || o.form.encode == nil {
		return nil
	}
	return o.form
}

// bytes encodes an object that came in its Go form, once.
func (f *goForm) bytes(o *Object) []byte {
	f.once.Do(func() {
		var err error
		if f.raw, err = f.encode.EncodeGo(f.value); err != nil {
			f.raw, _ = json.Marshal(o.metadata()) // text: it never fails
		}
	})
	return f.raw
}

// metadata is what is known of an object without its bytes.
func (o *Object) metadata() metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: o.apiVersion, Kind: o.kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.namespace, Name: o.name, UID: types.UID(o.uid), ResourceVersion: o.rv, Labels: o.labels,
		},
	}
}
