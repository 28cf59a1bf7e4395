package forward

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stall is how long a client may take to send the next part of its body, or to accept the next part
	// of its answer.
	stall = time.Minute

	// leftover is how long net/http may read the rest of a body that the server did not want.
	leftover = 5 * time.Second

	// unwanted is how long a client may take to send the next part of a body that the server did not want.
	unwanted = time.Second
)

// exchange is a request with its answer. Its deadlines are renewed by progress; they replace the ones for
// the whole request. It is the http.ResponseWriter of the answer.
type exchange struct {
	http.ResponseWriter
	control *http.ResponseController
	body    *body       // nil for none
	sent    atomic.Bool // there was a connection to send it on

	answered func(error) // see Options.Await; it does nothing the second time
	hijacked bool
}

// newExchange removes the deadlines of a request. Not every writer has deadlines: in tests some have
// none.
func newExchange(w http.ResponseWriter, r *http.Request, answered func(error)) *exchange {
	x := &exchange{ResponseWriter: w, control: http.NewResponseController(w), answered: answered}
	_ = x.control.SetWriteDeadline(time.Time{})
	if r.ContentLength != 0 {
		_ = x.control.SetReadDeadline(time.Time{})
		x.body = &body{ReadCloser: r.Body, control: x.control, multi: r.ProtoMajor > 1}
	}
	return x
}

// end sets the deadlines for the work that net/http has left.
func (x *exchange) end() {
	x.answered(context.Canceled)
	if x.hijacked {
		return
	}
	_ = x.control.SetWriteDeadline(time.Now().Add(stall))
	if x.body != nil {
		x.body.end()
	}
}

func (x *exchange) WriteHeader(code int) {
	x.answered(nil)
	if h := x.Header(); code >= http.StatusOK && h["Content-Type"] == nil {
		h["Content-Type"] = nil // else net/http guesses one
	}
	if code >= http.StatusOK && x.body != nil {
		x.body.answer()
	}
	x.ResponseWriter.WriteHeader(code)
}

func (x *exchange) Write(p []byte) (int, error) {
	_ = x.control.SetWriteDeadline(time.Now().Add(stall))
	return x.ResponseWriter.Write(p)
}

// FlushError is for [http.ResponseController]. It follows each Write, and removes the deadline, which
// would end a stream of HTTP/2 that is idle.
func (x *exchange) FlushError() error {
	_ = x.control.SetWriteDeadline(time.Now().Add(stall))
	err := x.control.Flush()
	if err == nil {
		_ = x.control.SetWriteDeadline(time.Time{})
	}
	return err
}

func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	x.answered(nil)
	conn, buffer, err := x.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.hijacked = true
	return hijacked{conn}, buffer, nil
}

// hijacked is a connection whose protocol has changed. It may be idle, but the other side has to accept
// written bytes in time.
type hijacked struct{ net.Conn }

func (c hijacked) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(stall))
	return c.Conn.Write(p)
}

// CloseWrite closes one direction, if the connection can do that.
func (c hijacked) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// body is the body of a request. It is read by a transport, which may do that until after the answer.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	multi   bool // the connection has other requests too, as of HTTP/2

	mu       sync.Mutex
	reading  bool
	answered bool
	closed   bool  // by the transport
	over     bool  // the handler has returned: its writer must not be used
	err      error // of the last Read
	broken   bool  // the client has not sent the whole body
}

var errOver = errors.New("the request has been answered")

func (b *body) Read(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading, b.err = false, err
	b.broken = err != nil && err != io.EOF && !b.closed
	if err == nil && !b.over { // at the end of the body net/http begins to wait for the end of the connection
		b.restLocked()
	}
	return n, err
}

// restLocked sets the deadline between two reads.
func (b *body) restLocked() {
	at := time.Time{} // the server may take its time
	if b.answered && !b.multi || b.over {
		at = time.Now().Add(leftover) // net/http reads it
	}
	_ = b.control.SetReadDeadline(at)
}

func (b *body) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || b.closed || b.over {
		return cmp.Or(b.err, errOver)
	}
	b.reading = true
	_ = b.control.SetReadDeadline(time.Now().Add(stall))
	return nil
}

// Close ends a Read in progress, for which the transport may wait: if the server answers before it has
// the whole body, the client may not send the rest.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.err != nil || b.over {
		return nil
	}
	b.closed = true
	switch {
	case b.multi:
		return b.ReadCloser.Close()
	case b.reading: // the Close of HTTP/1.1 waits for it
		time.AfterFunc(unwanted, b.cut)
	}
	return nil
}

func (b *body) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading && !b.over {
		_ = b.control.SetReadDeadline(time.Unix(1, 0)) // it has passed
	}
}

func (b *body) isBroken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken
}

// answer begins the answer, for which net/http may read the rest of the body.
func (b *body) answer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answered = true; b.err == nil && !b.reading {
		b.restLocked()
	}
}

// end ends the use of the writer.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over = true; b.err == nil {
		b.restLocked()
	}
}
