package upstream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/snapcache/snapcache/object"
)

// The field numbers of a runtime.Unknown, and of a list in it.
const (
	unknownType, unknownRaw = 1, 2
	listMeta, listItems     = 1, 2 // by convention, of any kind of list
)

// parseProtobufPage is [parsePage] for protobuf. Each item is in the form of
// [object.Object.Protobuf], as an object of resource, in memory of its own.
func parseProtobufPage(r io.Reader, resource Resource, more func(next string), item func([]byte) error) (page, error) {
	p := page{remaining: -1}
	body := messageReader{r: bufio.NewReaderSize(r, frameBuffer), left: math.MaxInt64}
	err := p.parseProtobuf(&body, object.NewEnvelope(resource.APIVersion(), resource.Kind), more, item)
	return p, badList(err)
}

func (p *page) parseProtobuf(body *messageReader, envelope object.Envelope, more func(string), item func([]byte) error) error {
	prefix := make([]byte, object.ProtobufPrefixLen)
	if _, err := io.ReadFull(body.r, prefix); err != nil {
		return cutOff(err)
	}
	if !object.IsProtobuf(prefix) {
		return errors.New("the body does not begin as Kubernetes' protobuf does")
	}
	hasItems := false
	for {
		field, err := body.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch field {
		case unknownType:
			var t runtime.TypeMeta
			if err := body.decode(&t); err != nil {
				return err
			}
			p.apiVersion, p.kind = t.APIVersion, t.Kind
		case unknownRaw:
			hasItems = true
			if err := p.parseProtobufList(&messageReader{r: body.r, left: body.size}, envelope, more, item); err != nil {
				return err
			}
		default:
			if err := body.skip(); err != nil {
				return err
			}
		}
	}
	if !hasItems {
		return fmt.Errorf("the body is of kind %q and ends before the items: %w", p.kind, io.ErrUnexpectedEOF)
	}
	return nil
}

func (p *page) parseProtobufList(list *messageReader, envelope object.Envelope, more func(string), item func([]byte) error) error {
	for {
		field, err := list.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case field == listMeta:
			var m metav1.ListMeta
			if err := list.decode(&m); err != nil {
				return err
			}
			p.rv, p.next = m.ResourceVersion, m.Continue
			p.setRemaining(ptr.Deref(m.RemainingItemCount, 0), m.RemainingItemCount != nil)
			more(p.next)
		case field == listItems:
			if list.size > maxObject {
				return ErrTooLarge
			}
			raw, message := envelope.New(int(list.size))
			if _, err := io.ReadFull(list.r, message); err != nil {
				return cutOff(err)
			}
			if err := item(raw); err != nil {
				return &itemError{err}
			}
		default:
			if err := list.skip(); err != nil {
				return err
			}
		}
	}
}

// messageReader reads the fields of a protobuf message as they arrive.
type messageReader struct {
	r    *bufio.Reader
	left int64 // bytes of the message from the next field on; math.MaxInt64 for a message that ends with r
	size int64 // bytes of the field that next returned, which the caller reads from r
}

// next returns the number of the next length-delimited field. It skips others. After the last
// field it returns io.EOF.
func (m *messageReader) next() (protowire.Number, error) {
	for m.left > 0 {
		tag, err := binary.ReadUvarint(m)
		if err != nil {
			if m.left == math.MaxInt64 && errors.Is(err, io.EOF) {
				return 0, io.EOF
			}
			return 0, cutOff(err)
		}
		number, typ := protowire.DecodeTag(tag)
		size := uint64(0)
		switch typ {
		case protowire.VarintType:
			_, err = binary.ReadUvarint(m)
		case protowire.Fixed32Type:
			size = 4
		case protowire.Fixed64Type:
			size = 8
		case protowire.BytesType:
			size, err = binary.ReadUvarint(m)
		default:
			err = fmt.Errorf("a field of wire type %d", typ)
		}
		switch {
		case err != nil:
			return 0, cutOff(err)
		case number < protowire.MinValidNumber:
			return 0, fmt.Errorf("a field of number %d", number)
		case size > uint64(max(0, m.left)):
			return 0, io.ErrUnexpectedEOF
		}
		m.size = int64(size)
		if m.left != math.MaxInt64 {
			m.left -= m.size
		}
		if typ == protowire.BytesType {
			return number, nil
		}
		if err := m.skip(); err != nil {
			return 0, err
		}
	}
	return 0, io.EOF
}

// ReadByte implements [io.ByteReader], for tags and lengths.
func (m *messageReader) ReadByte() (byte, error) {
	if m.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	b, err := m.r.ReadByte()
	if err == nil && m.left != math.MaxInt64 {
		m.left--
	}
	return b, err
}

// skip reads the field that next returned.
func (m *messageReader) skip() error {
	_, err := io.CopyN(io.Discard, m.r, m.size)
	return cutOff(err)
}

// decode reads the field that next returned.
func (m *messageReader) decode(into interface{ Unmarshal([]byte) error }) error {
	if m.size > maxObject {
		return ErrTooLarge
	}
	b := make([]byte, m.size)
	if _, err := io.ReadFull(m.r, b); err != nil {
		return cutOff(err)
	}
	return into.Unmarshal(b)
}
