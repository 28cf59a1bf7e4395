package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// protobufPrefix begins the output of Kubernetes' protobuf serializer.
var protobufPrefix = []byte("k8s\x00")

// ProtobufPrefixLen is how many bytes [IsProtobuf] needs.
const ProtobufPrefixLen = 4

// IsProtobuf reports whether raw begins as the output of Kubernetes' protobuf serializer does: a
// prefix and a [runtime.Unknown], which has the type and the message of an object.
//
// [runtime.Unknown]: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
func IsProtobuf(raw []byte) bool { return bytes.HasPrefix(raw, protobufPrefix) }

// Protobuf reports whether the object is stored as Kubernetes' protobuf instead of JSON. If so,
// [Object.Raw] returns protobuf, [Object.Into] accepts only types with a protobuf form, and
// [Object.JSON] and [Object.Field] cover only the metadata.
func (o *Object) Protobuf() bool { return IsProtobuf(o.raw) }

// JSON returns the object as JSON, which the caller must not change. For an object stored as
// protobuf it has the type, the parsed metadata and, in the field protobuf, the stored bytes as
// base64: only their Go type can decode them.
func (o *Object) JSON() []byte {
	if !o.Protobuf() {
		return o.Raw()
	}
	out, err := json.Marshal(struct {
		metav1.PartialObjectMetadata
		Protobuf []byte `json:"protobuf"`
	}{o.metadata(), o.raw})
	if err != nil {
		return []byte("{}") // strings and bytes always marshal
	}
	return out
}

// JSON returns [Object.JSON] of the object whose bytes are raw: raw itself unless it is protobuf.
func JSON(raw []byte) ([]byte, error) {
	if !IsProtobuf(raw) {
		return raw, nil
	}
	o, err := FromValid(raw)
	if err != nil {
		return nil, err
	}
	return o.JSON(), nil
}

// intoProtobuf is [Object.Into] for an object stored as protobuf.
func (o *Object) intoProtobuf(v any) error {
	m, ok := v.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("the object is stored as protobuf, which can't be decoded into a %s", reflect.TypeOf(v))
	}
	body, err := protobufBody(o.raw)
	if err != nil {
		return err
	}
	return m.Unmarshal(body)
}

// The field numbers read here of Kubernetes' messages. By convention the metadata is the first
// field of every kind.
const (
	unknownType, unknownRaw     = 1, 2 // runtime.Unknown
	typeAPIVersion, typeKind    = 1, 2 // runtime.TypeMeta
	objectMeta                  = 1    // of any kind
	metaName, metaNamespace     = 1, 3 // metav1.ObjectMeta
	metaUID, metaRV, metaLabels = 5, 6, 11
	entryKey, entryValue        = 1, 2 // of a map
)

func protobufBody(raw []byte) ([]byte, error) {
	return ProtobufField(raw[len(protobufPrefix):], unknownRaw)
}

// ProtobufField returns a length-delimited field of a message; nil if the message does not have it,
// the last one if it has several. Errors wrap [ErrInvalid].
func ProtobufField(message []byte, field protowire.Number) (value []byte, err error) {
	err = eachField(message, func(n protowire.Number, v []byte) error {
		if n == field {
			value = v
		}
		return nil
	})
	return value, err
}

// DecodeProtobuf decodes raw into m if it is of the given type.
func DecodeProtobuf(raw []byte, apiVersion, kind string, m interface{ Unmarshal([]byte) error }) error {
	o, err := parseProtobuf(raw)
	if err != nil {
		return err
	}
	if o.parsed.apiVersion != apiVersion || o.parsed.kind != kind {
		return fmt.Errorf("%w: it is a %q %q, not a %s %s", ErrInvalid, o.parsed.apiVersion, o.parsed.kind, apiVersion, kind)
	}
	body, err := protobufBody(raw)
	if err != nil {
		return err
	}
	return m.Unmarshal(body)
}

// Envelope makes the protobuf form of objects of one type from their messages, byte for byte as
// Kubernetes' serializer does. It is immutable.
type Envelope struct{ head []byte }

// NewEnvelope returns the envelope of a type.
func NewEnvelope(apiVersion, kind string) Envelope {
	var t []byte
	t = protowire.AppendString(protowire.AppendTag(t, typeAPIVersion, protowire.BytesType), apiVersion)
	t = protowire.AppendString(protowire.AppendTag(t, typeKind, protowire.BytesType), kind)
	head := append([]byte(nil), protobufPrefix...)
	head = protowire.AppendTag(head, unknownType, protowire.BytesType)
	head = protowire.AppendBytes(head, t)
	return Envelope{protowire.AppendTag(head, unknownRaw, protowire.BytesType)}
}

// unknownEnd are the last fields of a [runtime.Unknown], contentEncoding and contentType, which the
// serializer writes even though they are empty.
var unknownEnd = []byte{3<<3 | byte(protowire.BytesType), 0, 4<<3 | byte(protowire.BytesType), 0}

// New returns the bytes of an object with a message of size bytes, and the part of them that the
// caller has to fill with the message.
func (e Envelope) New(size int) (raw, message []byte) {
	length := protowire.SizeVarint(uint64(size))
	raw = make([]byte, 0, len(e.head)+length+size+len(unknownEnd))
	raw = protowire.AppendVarint(append(raw, e.head...), uint64(size))
	from := len(raw)
	raw = append(raw[:from+size], unknownEnd...)
	return raw, raw[from : from+size : from+size]
}

// parseProtobuf is [parseMeta] for protobuf.
func parseProtobuf(raw []byte) (*Object, error) {
	o := newObject(raw)
	err := eachField(raw[len(protobufPrefix):], func(n protowire.Number, value []byte) error {
		switch n {
		case unknownType:
			return readStrings(value, typeAPIVersion, &o.parsed.apiVersion, typeKind, &o.parsed.kind)
		case unknownRaw:
			return eachField(value, func(n protowire.Number, value []byte) error {
				if n == objectMeta {
					return o.parsed.readObjectMeta(value)
				}
				return nil
			})
		}
		return nil
	})
	return o, err
}

func (m *parsed) readObjectMeta(b []byte) error {
	return eachField(b, func(n protowire.Number, value []byte) error {
		switch n {
		case metaName:
			m.name = string(value)
		case metaNamespace:
			m.namespace = string(value)
		case metaUID:
			m.uid = string(value)
		case metaRV:
			m.rv = string(value)
		case metaLabels:
			if m.labels == nil {
				m.labels = map[string]string{}
			}
			var k, v string
			err := readStrings(value, entryKey, &k, entryValue, &v)
			m.labels[k] = v
			return err
		}
		return nil
	})
}

// readStrings reads two fields of a message.
func readStrings(b []byte, first protowire.Number, a *string, second protowire.Number, z *string) error {
	return eachField(b, func(n protowire.Number, value []byte) error {
		switch n {
		case first:
			*a = string(value)
		case second:
			*z = string(value)
		}
		return nil
	})
}

// eachField calls f with each length-delimited field of a message, in order. It skips other fields.
func eachField(b []byte, f func(n protowire.Number, value []byte) error) error {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("%w: %w", ErrInvalid, protowire.ParseError(size))
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, typ, b); size < 0 {
			return fmt.Errorf("%w: %w", ErrInvalid, protowire.ParseError(size))
		}
		if typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			if err := f(n, value); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}
