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

// Protobuf reports whether the object is stored as Kubernetes' protobuf instead of JSON. If so,
// [Object.Raw] returns protobuf, [Object.Into] accepts only types with a protobuf form, and
// [Object.JSON] and [Object.Field] cover only the metadata.
func (o *Object) Protobuf() bool { return bytes.HasPrefix(o.raw, protobufPrefix) }

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
	if !bytes.HasPrefix(raw, protobufPrefix) {
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

func protobufBody(raw []byte) (body []byte, err error) {
	err = eachField(raw[len(protobufPrefix):], func(n protowire.Number, value []byte) error {
		if n == unknownRaw {
			body = value
		}
		return nil
	})
	return body, err
}

// parseProtobuf is [parseMeta] for protobuf.
func parseProtobuf(raw []byte) (*Object, error) {
	o := &Object{raw: raw}
	err := eachField(raw[len(protobufPrefix):], func(n protowire.Number, value []byte) error {
		switch n {
		case unknownType:
			return o.parseType(value)
		case unknownRaw:
			return eachField(value, func(n protowire.Number, value []byte) error {
				if n == objectMeta {
					return o.parseObjectMeta(value)
				}
				return nil
			})
		}
		return nil
	})
	return o, err
}

func (o *Object) parseType(b []byte) error {
	return eachField(b, func(n protowire.Number, value []byte) error {
		switch n {
		case typeAPIVersion:
			o.apiVersion = string(value)
		case typeKind:
			o.kind = string(value)
		}
		return nil
	})
}

func (o *Object) parseObjectMeta(b []byte) error {
	return eachField(b, func(n protowire.Number, value []byte) error {
		switch n {
		case metaName:
			o.name = string(value)
		case metaNamespace:
			o.namespace = string(value)
		case metaUID:
			o.uid = string(value)
		case metaRV:
			o.rv = string(value)
		case metaLabels:
			var entry [entryValue + 1]string
			err := eachField(value, func(n protowire.Number, value []byte) error {
				if n == entryKey || n == entryValue {
					entry[n] = string(value)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if o.labels == nil {
				o.labels = map[string]string{}
			}
			o.labels[entry[entryKey]] = entry[entryValue]
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
