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

// frameBuffer is the read buffer of a watch in bytes. Most events fit.
const frameBuffer = 32 << 10

// lineFramer cuts a watch stream into lines. A server's frames are compact JSON
// with a line feed behind each and none inside.
type lineFramer struct{}

// NewFrameReader implements [runtime.Framer].
func (lineFramer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &lineReader{body: r, buf: bufio.NewReaderSize(r, frameBuffer)}
}

// NewFrameWriter implements [runtime.Framer].
func (lineFramer) NewFrameWriter(io.Writer) io.Writer { return io.Discard }

// lineReader hands out one frame a Read, as apimachinery's streaming decoder asks:
// io.ErrShortBuffer says that the frame goes on, with the next Read. That decoder
// gives up on a frame over 16 MiB, and the watch with it; the resumed watch would
// meet the same event again. So a longer frame is cut to exactly maxObject bytes,
// which the event decoder knows as too large, and the rest of it is passed over.
//
// Read is for one goroutine; Close may come at any time from another.
type lineReader struct {
	body  io.ReadCloser
	buf   *bufio.Reader
	chunk []byte // of buf, not handed out yet
	last  bool   // chunk is the end of its frame
	size  int    // bytes of the frame in chunk and before it
	err   error  // ends the stream once chunk is handed out
}

// Close implements [io.Closer].
func (l *lineReader) Close() error { return l.body.Close() }

// Read implements [io.Reader].
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

// fill reads the next chunk. Afterwards there is a chunk, or the end of a frame,
// or an error.
func (l *lineReader) fill() {
	chunk, err := l.buf.ReadSlice('\n')
	switch {
	case err == nil:
		chunk, l.last = bytes.TrimSuffix(chunk[:len(chunk)-1], []byte("\r")), true
	case errors.Is(err, bufio.ErrBufferFull):
	case errors.Is(err, io.EOF):
		// The server closed the stream in good order. What is left has to be an event.
		l.last, l.err = l.size+len(chunk) > 0, io.EOF
	default:
		l.lost(err)
		return
	}
	if room := maxObject - l.size; len(chunk) >= room {
		// Passing over the rest reads into the buffer that the chunk is in.
		chunk = bytes.Clone(chunk[:room])
		l.skip()
	}
	l.chunk, l.size = chunk, l.size+len(chunk)
}

// skip reads up to the end of a frame that is too large. An error ends the frame
// and comes again with the next read.
func (l *lineReader) skip() {
	for !l.last {
		_, err := l.buf.ReadSlice('\n')
		l.last = !errors.Is(err, bufio.ErrBufferFull)
	}
}

// lost ends a stream whose connection broke. Left alone, the streaming decoder
// would close the watch as if the server had done it, and a reflector could not
// tell a bad link from a resourceVersion that the server does not know. So the
// stream ends with an ERROR event. Where a part of a frame is out already, a line
// feed, which no frame has inside, tells the event decoder where the event begins.
func (l *lineReader) lost(err error) {
	l.err = io.EOF
	if errors.Is(err, context.Canceled) {
		return // by the caller
	}
	st := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   ReasonConnectionLost,
		Message:  "the connection broke during a watch: " + oneLine(err.Error()),
	}
	raw, err := json.Marshal(st)
	if err != nil {
		l.err = err
		return
	}
	l.chunk = append([]byte("\n"+`{"type":"`+string(watch.Error)+`","object":`), raw...)
	l.chunk = append(l.chunk, '}')
	l.size, l.last = l.size+len(l.chunk), true
	if l.size >= maxObject {
		// Too much of a frame is out for the event to fit.
		l.chunk, l.last, l.err = nil, false, io.ErrUnexpectedEOF
	}
}
