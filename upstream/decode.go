package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/object"
)

// InvalidObject takes the place of an object that can't be cached in a watch event: not a JSON
// object, without a name, of another type, or too large. The watch continues after it.
// InvalidObject is immutable.
type InvalidObject struct {
	// Err is the reason.
	Err error

	// Key is the object's key, if known.
	Key string
}

// GetObjectKind implements [runtime.Object]. There is no kind.
func (u *InvalidObject) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns u itself.
func (u *InvalidObject) DeepCopyObject() runtime.Object { return u }

// decoding turns the bytes that a source receives into objects. It is immutable.
type decoding struct {
	resource Resource
	prune    object.Prune
}

var pruneBuffers = sync.Pool{New: func() any { return new([]byte) }}

// item decodes raw, which is valid JSON in a buffer that the caller reuses, into an object of its
// own memory. typed reports whether raw contained apiVersion and kind.
func (d decoding) item(raw []byte) (o *object.Object, typed bool, err error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, true, object.ErrInvalid
	}
	// Prune first, so that only the rest is copied.
	rest := raw
	if !d.prune.None() {
		buf, _ := pruneBuffers.Get().(*[]byte)
		defer pruneBuffers.Put(buf)
		if *buf, err = d.prune.Append((*buf)[:0], raw); err != nil {
			return nil, true, err
		}
		rest = *buf
	}
	own := rest
	if d.resource.Kind != "" {
		own = object.WithType(rest, d.resource.APIVersion(), d.resource.Kind)
	}
	if typed = len(own) == len(rest); typed {
		own = bytes.Clone(rest)
	}
	o, err = d.own(own)
	return o, typed, err
}

// message decodes raw, which is protobuf, into an object that keeps it, unless something is pruned.
func (d decoding) message(raw []byte) (o *object.Object, err error) {
	if !d.prune.None() {
		if raw, err = d.prune.Append(nil, raw); err != nil {
			return nil, err
		}
	}
	return d.own(raw)
}

// own decodes raw, which is valid JSON or protobuf, into an object that keeps it.
func (d decoding) own(raw []byte) (*object.Object, error) {
	o, err := object.FromValid(raw)
	if err != nil {
		return nil, err
	}
	if d.resource.Kind != "" && (o.Kind() != d.resource.Kind || o.APIVersion() != d.resource.APIVersion()) {
		return nil, fmt.Errorf("%w: %s %s %s, not %s %s", ErrWrongType,
			o.APIVersion(), o.Kind(), o.Key(), d.resource.APIVersion(), d.resource.Kind)
	}
	return o, nil
}

// event decodes the object of a watch event: an *object.Object, a *metav1.Status or an
// *InvalidObject. JSON is valid, in a buffer that the caller reuses; protobuf is in its own memory.
func (d decoding) event(typ watch.EventType, raw []byte) runtime.Object {
	var o *object.Object
	var err error
	packed := object.IsProtobuf(raw)
	switch {
	case typ == watch.Error:
		if st := status(raw); st != nil {
			return st
		}
		return &InvalidObject{Err: errors.New("ERROR event without a Status")}
	case typ == watch.Bookmark:
		if !packed {
			raw = bytes.Clone(raw)
		}
		o, err = object.ParseBookmark(raw)
	case packed:
		o, err = d.message(raw)
	default:
		o, _, err = d.item(raw)
	}
	if err == nil {
		return o
	}
	if st := status(raw); st != nil {
		return st
	}
	return &InvalidObject{Err: err}
}

// status decodes raw, which is protobuf or valid JSON, as a Status, or returns nil if it is not one.
func status(raw []byte) *metav1.Status {
	st := &metav1.Status{}
	if object.IsProtobuf(raw) {
		if err := object.DecodeProtobuf(raw, "v1", "Status", st); err != nil {
			return nil
		}
		return st
	}
	kind := gjson.GetManyBytes(raw, "kind", "apiVersion")
	if kind[0].Str != "Status" || kind[1].Str != "v1" {
		return nil
	}
	if json.Unmarshal(raw, st) != nil {
		return nil
	}
	return st
}

// safeDepth limits the recursion of gjson's validation, which has no limit of its own. A stack
// overflow can't be recovered.
const safeDepth = 10_000

// validJSON reports whether b is one JSON value, nested at most 10,000 deep.
func validJSON(b []byte) bool {
	if bytes.Count(b, []byte{'['})+bytes.Count(b, []byte{'{'}) > safeDepth {
		return json.Valid(b) // slower, but its depth is limited
	}
	return gjson.ValidBytes(b)
}
