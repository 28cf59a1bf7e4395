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

// decoding turns a source's JSON into objects. It is immutable.
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
	if o, err = object.FromValid(own); err != nil {
		return nil, typed, err
	}
	if d.resource.Kind != "" && (o.Kind() != d.resource.Kind || o.APIVersion() != d.resource.APIVersion()) {
		return nil, typed, fmt.Errorf("%w: %s %s %s, not %s %s", ErrWrongType,
			o.APIVersion(), o.Kind(), o.Key(), d.resource.APIVersion(), d.resource.Kind)
	}
	return o, typed, nil
}

// A watch event is decoded in two steps, which client-go's rest package calls in turn: eventDecoder
// splits a frame into type and object, objectDecoder decodes the object. rest does not pass the
// type to the second step, so the first one overwrites the byte before the object with a mark and
// passes it along. Nothing is copied: the frame stays untouched until both have returned.
//
// No JSON begins with a mark, so the body of an error answer can't be taken for an event.
const (
	markObject   byte = iota + 1 // of an ADDED, MODIFIED or DELETED event
	markBookmark                 // of a BOOKMARK event
	markError                    // of an ERROR event
	markTooLarge                 // the frame was cut off at maxObject; no object follows
)

func mark(eventType string) byte {
	switch watch.EventType(eventType) {
	case watch.Bookmark:
		return markBookmark
	case watch.Error:
		return markError
	}
	return markObject
}

// newSerializer returns the serializer of a rest client: JSON only, errors as *metav1.Status, watch
// events decoded with d.
func newSerializer(d decoding) runtime.NegotiatedSerializer {
	return runtime.NewSimpleNegotiatedSerializer(runtime.SerializerInfo{
		MediaType:        runtime.ContentTypeJSON,
		MediaTypeType:    "application",
		MediaTypeSubType: "json",
		EncodesAsText:    true,
		Serializer:       runtime.NoopEncoder{Decoder: objectDecoder{d}},
		StreamSerializer: &runtime.StreamSerializerInfo{
			EncodesAsText: true,
			Serializer:    runtime.NoopEncoder{Decoder: eventDecoder{}},
			Framer:        lineFramer{},
		},
	})
}

type eventDecoder struct{}

// Decode implements [runtime.Decoder]. An error ends the watch, so only frames that are not events
// return one.
func (eventDecoder) Decode(frame []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	ev, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("decode a watch event into %T", into)
	}
	if len(frame) >= maxObject {
		ev.Type, ev.Object.Raw = string(watch.Modified), []byte{markTooLarge}
		return ev, nil, nil
	}
	if i := bytes.LastIndexByte(frame, '\n'); i >= 0 {
		// See lineReader.lost.
		frame = frame[i+1:]
	}
	typ, at, end, ok := cutEvent(frame)
	if !ok {
		return nil, nil, fmt.Errorf("a frame of %d bytes is not a watch event", len(frame))
	}
	frame[at-1] = mark(typ)
	ev.Type, ev.Object.Raw = typ, frame[at-1:end]
	return ev, nil, nil
}

var objectMember = []byte(`","object":`)

// cutEvent returns the type of the event in frame and the range of its object, which is valid JSON
// and never begins at 0.
func cutEvent(frame []byte) (typ string, at, end int, ok bool) {
	// All servers write the same two members in this order and without spaces.
	const head = `{"type":"`
	frame = bytes.TrimRight(frame, " \t\r")
	if bytes.HasPrefix(frame, []byte(head)) && frame[len(frame)-1] == '}' {
		if n := bytes.IndexByte(frame[len(head):], '"'); n >= 0 && bytes.HasPrefix(frame[len(head)+n:], objectMember) {
			at, end = len(head)+n+len(objectMember), len(frame)-1
			// If frame[at:end] is not one JSON value, frame has more members.
			if typ = eventType(frame[len(head) : len(head)+n]); at < end && typ != "" && validJSON(frame[at:end]) {
				return typ, at, end, true
			}
		}
	}
	if !validJSON(frame) {
		return "", 0, 0, false
	}
	fields := gjson.GetManyBytes(frame, "type", "object")
	if typ = eventType([]byte(fields[0].Str)); typ == "" || fields[1].Index == 0 {
		return "", 0, 0, false
	}
	return typ, fields[1].Index, fields[1].Index + len(fields[1].Raw), true
}

// eventType returns b as a string without allocating, or "" if it is not a known type.
func eventType(b []byte) string {
	for _, t := range []watch.EventType{watch.Modified, watch.Added, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(b) == string(t) {
			return string(t)
		}
	}
	return ""
}

// objectDecoder decodes the objects that eventDecoder cut out, and the Status in the body of an
// error answer.
type objectDecoder struct{ d decoding }

// Decode implements [runtime.Decoder]. It returns an *object.Object, a *metav1.Status or an
// *InvalidObject. It fails only if the body of an error answer is not a Status.
func (o objectDecoder) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if len(data) == 0 {
		return nil, nil, object.ErrInvalid
	}
	raw := data[1:]
	switch data[0] {
	case markObject:
		return o.event(raw), nil, nil
	case markBookmark:
		b, err := object.ParseBookmark(bytes.Clone(raw))
		if err != nil {
			return &InvalidObject{Err: err}, nil, nil
		}
		return b, nil, nil
	case markError:
		if st := status(raw); st != nil {
			return st, nil, nil
		}
		return &InvalidObject{Err: errors.New("ERROR event without a Status")}, nil, nil
	case markTooLarge:
		return &InvalidObject{Err: ErrTooLarge}, nil, nil
	}
	if validJSON(data) {
		if st := status(data); st != nil {
			return st, nil, nil
		}
	}
	return nil, nil, errors.New("the body is not a Status")
}

func (o objectDecoder) event(raw []byte) runtime.Object {
	obj, _, err := o.d.item(raw)
	if err == nil {
		return obj
	}
	if st := status(raw); st != nil {
		return st
	}
	return &InvalidObject{Err: err}
}

// status decodes raw, which is valid JSON, as a Status, or returns nil if it is not one.
func status(raw []byte) *metav1.Status {
	kind := gjson.GetManyBytes(raw, "kind", "apiVersion")
	if kind[0].Str != "Status" || kind[1].Str != "v1" {
		return nil
	}
	st := &metav1.Status{}
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
