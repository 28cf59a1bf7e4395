package upstream

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/object"
)

// frameReader splits a watch stream into events.
type frameReader interface {
	// next returns the type and the object of the next event. raw is valid until the call after it.
	// The error is io.EOF at the normal end of the stream; [ErrTooLarge] for an event that was
	// skipped; [ErrTooDeep] for an event whose object was not checked, because of its depth; errNoEvent
	// for a frame that is not an event; any other is the connection's.
	next() (typ watch.EventType, raw []byte, err error)
}

var errNoEvent = errors.New("not a watch event")

// frameBuffer is the read buffer of a watch, in bytes. Most events fit.
const frameBuffer = 32 << 10

// lines reads the frames of JSON: an event a line, with no line feed inside.
type lines struct {
	buf  *bufio.Reader
	long []byte // a line that is longer than the buffer
	err  error  // ends the stream
}

func newLines(r io.Reader) *lines { return &lines{buf: bufio.NewReaderSize(r, frameBuffer)} }

func (l *lines) next() (watch.EventType, []byte, error) {
	for l.err == nil {
		line, err := l.line()
		if err != nil {
			return "", nil, err
		}
		if line = bytes.TrimRight(line, " \t\r\n"); len(line) > 0 {
			return cutEvent(line)
		}
	}
	return "", nil, l.err
}

// line returns the next line. At the normal end of the stream it returns the
// remaining bytes, if any, which have to be an event. A line of a connection that broke is dropped.
func (l *lines) line() ([]byte, error) {
	l.long = l.long[:0]
	size := 0
	for {
		chunk, err := l.buf.ReadSlice('\n')
		size += len(bytes.TrimSuffix(chunk, []byte("\n")))
		full := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !full {
			l.err = err
		}
		switch {
		case full && size < maxObject:
			l.long = append(l.long, chunk...)
		case full: // skip the rest of the line
		case size >= maxObject:
			return nil, ErrTooLarge
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case len(l.long) == 0:
			return chunk, nil
		default:
			l.long = append(l.long, chunk...)
			return l.long, nil
		}
	}
}

var objectMember = []byte(`","object":`)

// cutEvent returns type and object of the event in frame, which has no space at its end.
func cutEvent(frame []byte) (watch.EventType, []byte, error) {
	// All servers write the same two members in this order and without spaces.
	const head = `{"type":"`
	if bytes.HasPrefix(frame, []byte(head)) && frame[len(frame)-1] == '}' {
		if n := bytes.IndexByte(frame[len(head):], '"'); n >= 0 && bytes.HasPrefix(frame[len(head)+n:], objectMember) {
			raw := frame[len(head)+n+len(objectMember) : len(frame)-1]
			// If raw is not one JSON value, frame has more members.
			typ := eventType(frame[len(head) : len(head)+n])
			if typ != "" && validJSON(raw) {
				return typ, raw, nil
			}
			if typ != "" && tooDeep(raw) {
				return typ, raw, ErrTooDeep
			}
		}
	}
	if validJSON(frame) {
		fields := gjson.GetManyBytes(frame, "type", "object")
		if typ := eventType([]byte(fields[0].Str)); typ != "" && fields[1].Index > 0 {
			return typ, frame[fields[1].Index : fields[1].Index+len(fields[1].Raw)], nil
		}
	}
	return "", nil, fmt.Errorf("%w: a frame of %d bytes", errNoEvent, len(frame))
}

// eventType returns b as a type without allocating, or "" if it is not a known one.
func eventType(b []byte) watch.EventType {
	for _, t := range []watch.EventType{watch.Modified, watch.Added, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(b) == string(t) {
			return t
		}
	}
	return ""
}

// messages reads the frames of protobuf: the length in four bytes, and a metav1.WatchEvent whose
// object is in the form of [object.Object.Protobuf]. Each event has memory of its own.
type messages struct{ buf *bufio.Reader }

func newMessages(r io.Reader) *messages { return &messages{bufio.NewReaderSize(r, frameBuffer)} }

func (m *messages) next() (watch.EventType, []byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(m.buf, head[:]); err != nil {
		return "", nil, err // io.EOF between two frames
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size >= maxObject {
		if _, err := io.CopyN(io.Discard, m.buf, size); err != nil {
			return "", nil, cutOff(err)
		}
		return "", nil, ErrTooLarge
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(m.buf, frame); err != nil {
		return "", nil, cutOff(err)
	}
	typ, raw, err := protobufEvent(frame)
	if err != nil {
		return "", nil, fmt.Errorf("%w: a frame of %d bytes: %w", errNoEvent, size, err)
	}
	return typ, raw, nil
}

// The field numbers of a metav1.WatchEvent, and of the runtime.RawExtension in it.
const (
	eventTypeField, eventObjectField = 1, 2
	extensionRawField                = 1
)

// protobufEvent returns type and object of a metav1.WatchEvent. Its own Unmarshal copies the object.
func protobufEvent(frame []byte) (watch.EventType, []byte, error) {
	name, err := object.ProtobufField(frame, eventTypeField)
	if err != nil {
		return "", nil, err
	}
	typ := eventType(name)
	if typ == "" {
		return "", nil, fmt.Errorf("its type is %q", name)
	}
	extension, err := object.ProtobufField(frame, eventObjectField)
	if err != nil {
		return "", nil, err
	}
	raw, err := object.ProtobufField(extension, extensionRawField)
	if !object.IsProtobuf(raw) && !validJSON(raw) {
		raw = nil // which is no object
	}
	return typ, raw, err
}

// cutOff returns the error of a body that ended within a message.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
