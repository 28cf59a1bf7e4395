package object

import (
	"encoding/json"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Go is an object in its Go form. Size returns its length as protobuf, as for the API's own types.
type Go interface {
	runtime.Object
	metav1.Object
	Size() int
}

// goForm is the Go form of an object.
type goForm struct {
	value runtime.Object

	// The fields below are for an object without bytes, which is encoded when Raw is first called.
	encode func(runtime.Object) ([]byte, error)
	once   sync.Once
	raw    []byte
}

// FromGo returns an object with v as its Go form; v must not be changed afterwards. encode makes
// the object's JSON of v, once, when it is first needed. Errors wrap [ErrInvalid] or
// [ErrNoMetadata].
func FromGo(v Go, apiVersion, kind string, encode func(runtime.Object) ([]byte, error)) (*Object, error) {
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

// WithGo returns a copy of o with v as its Go form; v must not be changed afterwards.
func (o *Object) WithGo(v runtime.Object) *Object {
	with := *o
	with.raw, with.form = o.Raw(), &goForm{value: v}
	return &with
}

// Go returns the object's Go form, which the caller must not change; nil if it has none.
func (o *Object) Go() runtime.Object {
	if o.form == nil {
		return nil
	}
	return o.form.value
}

// Encoded reports whether the object was made from its bytes. If it was made by [FromGo], its bytes
// are made when they are first needed.
func (o *Object) Encoded() bool { return o.lazy() == nil }

// lazy returns the Go form from which the bytes are made when needed; nil for an object that was
// made from bytes.
func (o *Object) lazy() *goForm {
	if o.form == nil || o.form.encode == nil {
		return nil
	}
	return o.form
}

// bytes encodes the Go form on the first call, and returns the result.
func (f *goForm) bytes(o *Object) []byte {
	f.once.Do(func() {
		var err error
		if f.raw, err = f.encode(f.value); err != nil {
			f.raw, _ = json.Marshal(o.metadata()) // these strings always encode
		}
	})
	return f.raw
}

// metadata returns the part of an object that is known without its bytes.
func (o *Object) metadata() metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: o.apiVersion, Kind: o.kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.namespace, Name: o.name, UID: types.UID(o.uid), ResourceVersion: o.rv, Labels: o.labels,
		},
	}
}
