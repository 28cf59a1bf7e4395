package object

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is one Kubernetes object: its JSON and its parsed metadata. A program may also keep
// objects as protobuf, see [Object.Protobuf].
//
// It is immutable and safe for concurrent use. It is a [runtime.Object] and a
// [metav1.ObjectMetaAccessor], so client-go's key and index functions work on
// it; they decode the whole metadata, so on hot paths use the getters here.
type Object struct {
	raw    []byte
	parsed *parsed // nil if the object was made by [FromGo]: then the Go form has the metadata
	form   *goForm // nil for none
}

// parsed is the metadata that is read when an object is made from its bytes.
type parsed struct {
	apiVersion string
	kind       string
	namespace  string
	name       string
	uid        string
	rv         string
	labels     map[string]string
}

// newObject returns an object with raw and no metadata yet.
func newObject(raw []byte) *Object {
	both := &struct {
		Object
		parsed
	}{Object: Object{raw: raw}}
	both.Object.parsed = &both.parsed
	return &both.Object
}

var (
	_ runtime.Object            = (*Object)(nil)
	_ metav1.ObjectMetaAccessor = (*Object)(nil)
)

var (
	// ErrInvalid means that bytes are not one valid JSON object.
	ErrInvalid = errors.New("not a valid JSON object")

	// ErrNoMetadata means that a JSON object has no metadata with a name, so it can't be a cached
	// Kubernetes object.
	ErrNoMetadata = errors.New("object has no metadata.name")
)

// Limits of an object. The API server's own limits are far lower: 253 bytes for a name, 3 MiB for a
// request. A store may rely on them.
const (
	MaxBytes    = 64 << 20 // of an object
	MaxKeyBytes = 8 << 10  // of its key
)

// Parse reads an object from unverified JSON, or from Kubernetes' protobuf if raw begins with its
// prefix. The object keeps raw: the caller must not change it afterwards. Errors wrap [ErrInvalid]
// or [ErrNoMetadata].
func Parse(raw []byte) (*Object, error) {
	// Not gjson's own check: its recursion has no limit.
	if !IsProtobuf(raw) && !json.Valid(raw) {
		return nil, ErrInvalid
	}
	return FromValid(raw)
}

// FromValid is [Parse] for bytes that are valid JSON already, because a decoder or a checksum has
// verified them. It skips the syntax check.
func FromValid(raw []byte) (*Object, error) {
	if len(raw) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes are over the limit of %d", ErrInvalid, len(raw), MaxBytes)
	}
	o, err := parse(raw)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

func parse(raw []byte) (*Object, error) {
	if IsProtobuf(raw) {
		return parseProtobuf(raw)
	}
	return parseMeta(raw)
}

// check returns an error if the object can't be stored.
func (o *Object) check() error {
	namespace, name := o.GetNamespace(), o.GetName()
	if name == "" {
		return ErrNoMetadata
	}
	if n := len(namespace) + 1 + len(name); n > MaxKeyBytes && len(o.Key()) > MaxKeyBytes {
		return fmt.Errorf("%w: a key of %d bytes is over the limit of %d", ErrInvalid, len(o.Key()), MaxKeyBytes)
	}
	return nil
}

// ParseBookmark reads the object of a BOOKMARK event, in either form. By the API's contract only its
// resourceVersion means anything.
func ParseBookmark(raw []byte) (*Object, error) {
	if !IsProtobuf(raw) && !json.Valid(raw) {
		return nil, ErrInvalid
	}
	o, err := parse(raw)
	if err != nil {
		return nil, err
	}
	if o.parsed.rv == "" {
		return nil, fmt.Errorf("bookmark without a resourceVersion: %w", ErrNoMetadata)
	}
	return o, nil
}

// text returns raw, which never changes, as a string without a copy: copies just for a search would
// be half the garbage of a list. Strings that outlive the search are cloned, so that a key does not
// keep a whole object in memory.
func text(raw []byte) string { return unsafe.String(unsafe.SliceData(raw), len(raw)) }

func parseMeta(raw []byte) (*Object, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, ErrInvalid
	}
	o := newObject(raw)
	m := o.parsed
	var meta gjson.Result
	found := 0
	gjson.Parse(text(raw)).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "apiVersion":
			m.apiVersion = strings.Clone(value.String())
		case "kind":
			m.kind = strings.Clone(value.String())
		case "metadata":
			meta = value
		default:
			return true
		}
		found++
		return found < 3
	})
	meta.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "name":
			m.name = strings.Clone(value.String())
		case "namespace":
			m.namespace = strings.Clone(value.String())
		case "uid":
			m.uid = strings.Clone(value.String())
		case "resourceVersion":
			m.rv = strings.Clone(value.String())
		case "labels":
			value.ForEach(func(k, v gjson.Result) bool {
				if m.labels == nil {
					m.labels = make(map[string]string)
				}
				m.labels[strings.Clone(k.String())] = strings.Clone(v.String())
				return true
			})
		}
		return true
	})
	return o, nil
}

// known returns the parsed metadata, which is empty for the zero Object.
func (o *Object) known() *parsed {
	if o.parsed == nil {
		return &parsed{}
	}
	return o.parsed
}

// Raw returns the object as it is stored: JSON, or protobuf if [Object.Protobuf]. The caller must
// not change it.
func (o *Object) Raw() []byte {
	if f := o.lazy(); f != nil {
		return f.bytes(o)
	}
	return o.raw
}

// Size returns the length of Raw in bytes. For an object made by [FromGo] it returns the length as
// protobuf, without encoding the object.
func (o *Object) Size() int {
	if f := o.lazy(); f != nil {
		return f.object().Size()
	}
	return len(o.raw)
}

// Kind returns the object's kind, such as "Pod".
func (o *Object) Kind() string {
	if f := o.lazy(); f != nil {
		return f.typ.Kind
	}
	return o.known().kind
}

// APIVersion returns the object's group and version, such as "apps/v1".
func (o *Object) APIVersion() string {
	if f := o.lazy(); f != nil {
		return f.typ.APIVersion
	}
	return o.known().apiVersion
}

// GetNamespace returns the namespace, empty for a cluster-scoped object.
func (o *Object) GetNamespace() string {
	if f := o.lazy(); f != nil {
		return f.object().GetNamespace()
	}
	return o.known().namespace
}

// GetName returns the name.
func (o *Object) GetName() string {
	if f := o.lazy(); f != nil {
		return f.object().GetName()
	}
	return o.known().name
}

// GetUID returns the UID. It differs between two objects that had the same name one after the
// other.
func (o *Object) GetUID() types.UID {
	if f := o.lazy(); f != nil {
		return f.object().GetUID()
	}
	return types.UID(o.known().uid)
}

// GetResourceVersion returns the resourceVersion. See [CompareRV].
func (o *Object) GetResourceVersion() string {
	if f := o.lazy(); f != nil {
		return f.object().GetResourceVersion()
	}
	return o.known().rv
}

// Labels returns the labels. The caller must not change the map.
func (o *Object) Labels() map[string]string {
	if f := o.lazy(); f != nil {
		return f.object().GetLabels()
	}
	return o.known().labels
}

// Key returns the object's key in a collection. See [Key].
func (o *Object) Key() string { return Key(o.GetNamespace(), o.GetName()) }

// Key returns "namespace/name", or "name" if namespace is empty, as client-go's
// MetaNamespaceKeyFunc does.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Field returns the value at a field path as text, and whether it exists. Paths have
// the form of [Prune]'s: names joined by dots, a dot inside a name escaped with a backslash. Objects and arrays
// are returned as their JSON.
func (o *Object) Field(path string) (string, bool) {
	r := gjson.GetBytes(o.JSON(), path)
	if !r.Exists() || r.Type == gjson.Null {
		return "", false
	}
	return r.String(), true
}

// Into decodes the object into a Go value, such as a *corev1.Pod.
func (o *Object) Into(v any) error {
	var err error
	if o.Protobuf() {
		err = o.intoProtobuf(v)
	} else {
		err = json.Unmarshal(o.Raw(), v)
	}
	if err != nil {
		return fmt.Errorf("decode %s %s: %w", o.Kind(), o.Key(), err)
	}
	return nil
}

// MarshalJSON returns [Object.JSON].
func (o *Object) MarshalJSON() ([]byte, error) { return o.JSON(), nil }

// GetObjectMeta decodes the whole metadata into a private copy, for [metav1.ObjectMetaAccessor].
// Changing the copy does not change o.
func (o *Object) GetObjectMeta() metav1.Object {
	m := &metav1.ObjectMeta{}
	if o.Protobuf() {
		var all metav1.PartialObjectMetadata
		if o.intoProtobuf(&all) == nil {
			m = &all.ObjectMeta
		}
	} else {
		// The bytes are valid JSON. If a field has a type that Kubernetes does not allow, the fields
		// parsed so far still identify the object.
		_ = json.Unmarshal([]byte(gjson.GetBytes(o.Raw(), "metadata").Raw), m)
	}
	m.Namespace, m.Name = o.GetNamespace(), o.GetName()
	m.UID, m.ResourceVersion = o.GetUID(), o.GetResourceVersion()
	return m
}

// GetObjectKind returns the object's group, version and kind, for [runtime.Object]. Setting it has
// no effect on o.
func (o *Object) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: o.APIVersion(), Kind: o.Kind()}
}

// DeepCopyObject returns o itself: an Object never changes.
func (o *Object) DeepCopyObject() runtime.Object { return o }

// CompareRV compares two resourceVersions as decimal numbers of any length and returns -1, 0 or +1.
// If either is not a decimal number, ok is false: it is opaque and has no order. The order holds
// only within one resource of one cluster (Kubernetes guarantees it since 1.35, KEP-5504).
func CompareRV(a, b string) (order int, ok bool) {
	if !IsDecimalRV(a) || !IsDecimalRV(b) {
		return 0, false
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)), true
}

// NewerRV reports whether a and b are comparable and a is greater. See [CompareRV].
func NewerRV(a, b string) bool {
	order, ok := CompareRV(a, b)
	return ok && order > 0
}

// IsDecimalRV reports whether rv is a decimal number and so comparable.
func IsDecimalRV(rv string) bool {
	for i := range len(rv) {
		if rv[i] < '0' || rv[i] > '9' {
			return false
		}
	}
	return rv != ""
}
