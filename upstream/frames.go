package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// frameBuffer is the read buffer of a watch, in bytes. Most events fit.
const frameBuffer = 32 << 10

// lineFramer splits a watch stream into lines. A server's frames are compact JSON, each with a line
// feed after it and none inside.
type lineFramer struct{}

func (lineFramer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &lineReader{body: r, buf: bufio.NewReaderSize(r, frameBuffer)}
}

func (lineFramer) NewFrameWriter(io.Writer) io.Writer { return io.Discard }

// lineReader returns one frame per Read, as apimachinery's streaming decoder expects:
// io.ErrShortBuffer means that the frame continues with the next Read. That decoder fails the whole
// watch on a frame over 16 MiB, and the resumed watch would receive the same event again. So a
// longer frame is truncated to exactly maxObject bytes, which the event decoder reports as too
// large, and the rest of the frame is skipped.
//
// Only one goroutine may call Read. Close is safe at any time from another.
type lineReader struct {
	body  io.ReadCloser
	buf   *bufio.Reader
	chunk []byte // part of buf, not returned yet
	last  bool   // chunk is the end of its frame
	size  int    // bytes of the frame so far, with chunk
	err   error  // ends the stream once chunk is returned
}

func (l *lineReader) Close() error { return l.body.Close() }

func (l *lineReader) Read(p []byte) (int, error) {
	n := 0
	for {
		c := copy(p[n:], l.chunk)
		n, l.chunk = n+c, l.chunk[c:]
		if len(l.chunk) > 0 {
			return n, io.ErrShortBuffer
		}
		if l.last {
			empty := l.size == 0
			l.last, l.size = false, 0
			if !empty {
				return n, nil
			}
		}
		if l.err != nil {
			return n, l.err
		}
		l.fill()
	}
}

// fill reads the next chunk. Afterwards there is a chunk, the end of a frame, or an error.
func (l *lineReader) fill() {
	chunk, err := l.buf.ReadSlice('\n')
	switch {
	case err == nil:
		chunk, l.last = bytes.TrimSuffix(chunk[:len(chunk)-1], []byte("\r")), true
	case errors.Is(err, bufio.ErrBufferFull):
	case errors.Is(err, io.EOF):
		// The server closed the stream normally. Any remaining bytes have to be an event.
		l.last, l.err = l.size+len(chunk) > 0, io.EOF
	default:
		l.lost(err)
		return
	}
	if room := maxObject - l.size; len(chunk) >= room {
		// skip overwrites the buffer that chunk points into.
		chunk = bytes.Clone(chunk[:room])
		l.skip()
	}
	l.chunk, l.size = chunk, l.size+len(chunk)
}

// skip reads to the end of a frame that is too large. An error ends the frame; the next read
// returns it again.
func (l *lineReader) skip() {
	for !l.last {
		_, err := l.buf.ReadSlice('\n')
		l.last = !errors.Is(err, bufio.ErrBufferFull)
	}
}

// lost ends a stream whose connection broke. Otherwise the streaming decoder would close the watch
// as if the server had done it, and a reflector could not distinguish a bad link from a
// resourceVersion that the server does not have. So the stream ends with an ERROR event. If part of
// a frame has been returned already, a line feed, which no frame contains, shows the event decoder
// the beginning of the event.
func (l *lineReader) lost(err error) {
	l.err = io.EOF
	if errors.Is(err, context.Canceled) {
		return // canceled by the caller
	}
	st := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   ReasonConnectionLost,
		Message:  "the connection broke during a watch: " + oneLine(err.Error()),
	}
	raw, _ := json.Marshal(st) // a Status can always be encoded
	l.chunk = append([]byte("\n"+`{"type":"`+string(watch.Error)+`","object":`), raw...)
	l.chunk = append(l.chunk, '}')
	l.size, l.last = l.size+len(l.chunk), true
	if l.size >= maxObject {
		// Too much of the frame has been returned already: the event does not fit.
		l.chunk, l.last, l.err = nil, false, io.ErrUnexpectedEOF
	}
}
