package object

import (
	"encoding/json"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Go is an object in its Go form. Size returns its length as protobuf, as for the API's own types.
type Go interface {
	runtime.Object
	metav1.Object
	Size() int
}

// GoType is how objects of a Go type are encoded that were made by [FromGo]. They share it: it must
// not be changed.
type GoType struct {
	APIVersion, Kind string

	// Encode makes an object's JSON. It may be called more than once for an object.
	Encode func(runtime.Object) ([]byte, error)
}

// goForm is the Go form of an object.
type goForm struct {
	value runtime.Object

	// The fields below are for an object without bytes, which is encoded when Raw is first called.
	typ *GoType
	raw atomic.Pointer[[]byte]
}

// FromGo returns an object with v as its Go form; v must not be changed afterwards. Its JSON is made
// when it is first needed. Errors wrap [ErrInvalid] or [ErrNoMetadata].
func FromGo(v Go, typ *GoType) (*Object, error) {
	both := &struct {
		Object
		goForm
	}{goForm: goForm{value: v, typ: typ}}
	o := &both.Object
	o.form = &both.goForm
	if err := o.check(); err != nil {
		return nil, err
	}
	return o, nil
}

// WithGo returns a copy of o with v as its Go form; v must not be changed afterwards.
func (o *Object) WithGo(v runtime.Object) *Object {
	known := o.parsed
	if o.lazy() != nil {
		known = &parsed{o.APIVersion(), o.Kind(), o.GetNamespace(), o.GetName(), string(o.GetUID()), o.GetResourceVersion(), o.Labels()}
	}
	return &Object{raw: o.Raw(), parsed: known, form: &goForm{value: v}}
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
	if o.form == nil || o.form.typ == nil {
		return nil
	}
	return o.form
}

// object returns the Go form of an object that was made by [FromGo].
func (f *goForm) object() Go { return f.value.(Go) }

// bytes encodes the Go form, unless that was done before, and returns the result.
func (f *goForm) bytes(o *Object) []byte {
	if raw := f.raw.Load(); raw != nil {
		return *raw
	}
	raw, err := f.typ.Encode(f.value)
	if err != nil {
		raw, _ = json.Marshal(o.metadata()) // these strings always encode
	}
	f.raw.CompareAndSwap(nil, &raw) // of two calls at a time one is used
	return *f.raw.Load()
}

// metadata returns the part of an object that is known without its bytes.
func (o *Object) metadata() metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: o.APIVersion(), Kind: o.Kind()},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Labels: o.Labels(),
		},
	}
}
