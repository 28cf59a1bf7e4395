package informer

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store/memory"
)

// A store in memory keeps an object in its Go form, beside the encoded form or, until its bytes are
// needed, in place of it. A mirror always keeps both. As in client-go, the Go form is the same object
// that the client returned, unless the caller has set a codec of its own.

// encode returns the stored form of obj. The caller must not change obj afterwards.
func (x *Indexer) encode(obj runtime.Object) (*object.Object, error) {
	if !x.shares {
		return x.encodeDropped(obj)
	}
	if !x.opts.drop.None() { // of a mirror: its Go form is without the dropped fields too
		o, err := x.encodeDropped(obj)
		if err != nil {
			return nil, err
		}
		return x.withGo(o), nil
	}
	share := share
	if x.coll.decode != nil { // the durable store needs the bytes
		share = encodeBeside
	}
	o, err := share(x.opts.codec, obj)
	if err == nil && o.Go() != nil {
		x.decoder.detector.AddObject(o.Go())
	}
	return o, err
}

// encodeDropped returns obj encoded, without the fields of [WithDrop].
func (x *Indexer) encodeDropped(obj runtime.Object) (*object.Object, error) {
	o, err := x.opts.codec.Encode(obj)
	if err != nil || x.opts.drop.None() {
		return o, err
	}
	raw, err := x.opts.drop.Append(nil, o.Raw())
	if err != nil {
		return nil, err
	}
	return object.FromValid(raw)
}

// share returns obj with its Go form. It encodes obj only if its size can't be known otherwise.
func share(codec Codec, obj runtime.Object) (*object.Object, error) {
	c, ok := codec.(*typedCodec)
	v, sized := obj.(object.Go)
	if !ok || !sized || c.envelope != nil || reflect.TypeOf(obj) != c.pointer {
		return encodeBeside(codec, obj)
	}
	typ := c.json
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		if gvk != c.gvk {
			apiVersion, kind := gvk.ToAPIVersionAndKind()
			typ = &object.GoType{APIVersion: apiVersion, Kind: kind, Encode: typ.Encode}
		}
		if c.bare {
			v = obj.DeepCopyObject().(object.Go)
			v.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
	}
	return object.FromGo(v, typ)
}

// encodeBeside returns obj encoded by codec, in its encoded and in its Go form.
func encodeBeside(codec Codec, obj runtime.Object) (*object.Object, error) {
	o, err := codec.Encode(obj)
	if err != nil {
		return nil, err
	}
	switch c := codec.(type) {
	case *typedCodec:
		if reflect.TypeOf(obj) == c.pointer {
			return o.WithGo(c.handedOut(obj, o)), nil
		}
	case unstructuredCodec:
		if _, tree := obj.(runtime.Unstructured); tree && obj.GetObjectKind().GroupVersionKind().Kind == o.Kind() {
			return o.WithGo(obj), nil
		}
	}
	v, err := codec.Decode(o)
	if err != nil {
		return o, nil //nolint:nilerr // readers of the object get the error
	}
	return o.WithGo(v), nil
}

// withGo returns an object that was read from a durable store with its Go form, or o itself if it
// can't be decoded: readers of it get the error.
func (x *Indexer) withGo(o *object.Object) *object.Object {
	if x.raw || o.Go() != nil {
		return o
	}
	with := o
	_ = guarded(x.logger(), func() error {
		v, err := x.decoder.fresh(o)
		if err == nil {
			with = o.WithGo(v)
		}
		return err
	})
	return with
}

// inMemory returns the collection if its objects can be read without a view: a store in memory, or
// a mirror, holds the values that readers get.
func (x *Indexer) inMemory() *memory.Collection {
	if !x.shares && !x.raw {
		return nil
	}
	return x.coll.inMemory()
}

// listInMemory is List for a collection in memory. It returns false if the collection can't be read, for
// example as it was closed meanwhile: a view has the stored objects, or the error.
func (x *Indexer) listInMemory(c *memory.Collection) ([]any, bool) {
	decode := x.decoder.scanning()
	list, encoded, err := c.Values()
	if err != nil || encoded == 0 || x.raw {
		return list, err == nil
	}
	return x.decoded(list, decode), true
}

// decoded decodes the values of list that have no Go form, in place, and leaves out values
// that can't be read.
func (x *Indexer) decoded(list []any, decode Decode) []any {
	kept := list[:0]
	for _, v := range list {
		if o, ok := v.(*object.Object); ok && !x.raw {
			var err error
			if v, err = decode(o); err != nil {
				x.failed(err)
				continue
			}
		}
		kept = append(kept, v)
	}
	return kept
}

// byValueInMemory is byValues for one value of a collection in memory. It returns false as listInMemory does.
func (x *Indexer) byValueInMemory(c *memory.Collection, index, value string) ([]any, bool) {
	decode := x.decoder.decoding()
	list, err := c.ValuesByIndex(index, value)
	return x.decoded(list, decode), err == nil
}
