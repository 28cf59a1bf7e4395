package forward

import (
	"bufio"
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

	// leftover is how long net/http may read what is left of a body that the server did not want.
	leftover = 10 * time.Second
)

// exchange is a request with its answer. Its deadlines are renewed by progress, in place of those of
// the whole request. It is the http.ResponseWriter of the answer.
type exchange struct {
	http.ResponseWriter
	control *http.ResponseController
	request *http.Request
	body    *body       // nil for none
	sent    atomic.Bool // there was a connection to send it on

	hijacked bool
}

// newExchange removes the deadlines of a request. Not every writer has deadlines: those of tests have
// none.
func newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{ResponseWriter: w, control: http.NewResponseController(w), request: r}
	_ = x.control.SetWriteDeadline(time.Time{})
	if r.ContentLength != 0 {
		_ = x.control.SetReadDeadline(time.Time{})
		x.body = &body{ReadCloser: r.Body, control: x.control}
		x.request = r.WithContext(r.Context())
		x.request.Body = x.body
	}
	return x
}

// end sets the deadlines for what net/http has still to do.
func (x *exchange) end() {
	if x.hijacked {
		return
	}
	_ = x.control.SetWriteDeadline(time.Now().Add(stall))
	if x.body != nil {
		x.body.end()
	}
}

func (x *exchange) bodyFailed() bool { return x.body != nil && x.body.failed() }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(code int) {
	if h := x.Header(); code >= http.StatusOK && h["Content-Type"] == nil {
		h["Content-Type"] = nil // else net/http guesses one
	}
	x.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
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

// Hijack implements http.Hijacker.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := x.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.hijacked = true
	return hijacked{conn}, buffer, nil
}

// hijacked is a connection whose protocol has changed. It may be idle, but what is written has to be
// accepted.
type hijacked struct{ net.Conn }

// Write implements net.Conn.
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

// body is the body of a request.
type body struct {
	io.ReadCloser
	control *http.ResponseController

	mu   sync.Mutex
	err  error // of the last Read
	over bool  // the handler has returned: its writer must not be used
}

var errOver = errors.New("the request has been answered")

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if err := b.deadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	b.err = err
	b.mu.Unlock()
	_ = b.deadline(time.Time{}) // the server may take its time; after an error there is none
	return n, err
}

// deadline sets the deadline of reads, unless they have ended.
func (b *body) deadline(at time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil: // at the end of the body net/http begins to wait for the end of the connection
		return b.err
	case b.over:
		return errOver
	}
	_ = b.control.SetReadDeadline(at)
	return nil
}

// failed reports whether the client has not sent its whole body.
func (b *body) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil && b.err != io.EOF
}

// end ends the use of the writer.
func (b *body) end() {
	_ = b.deadline(time.Now().Add(leftover))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}
