package kubeapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/internal/quota"
	"github.com/snapcache/snapcache/store"
)

// statusError is an error that a client of a watch gets as a frame.
type statusError = apierrors.APIStatus

// frameWriter writes the frames of a watch. A client that does not read is cut, and can continue from the
// last resourceVersion that it has.
type frameWriter struct {
	rw      http.ResponseWriter
	out     io.Writer // rw, or the packer in front of it
	dog     *watchdog
	pending *bytes.Buffer // frames that are not written yet; nil for none
	account *quota.Account
	q       *query
	buf     []byte
	headed  bool // a table had the columns
	started bool
}

func newFrameWriter(w http.ResponseWriter, r *http.Request, q *query) *frameWriter {
	f := &frameWriter{rw: w, out: w, dog: newWatchdog(w), account: quota.AccountOf(r.Context()), q: q}
	if acceptsCoding(r, "zstd") && acceptsCoding(r, "gzip") {
		f.out = &gzipWriter{w: w}
	}
	return f
}

// buffers is the pool for pending frames: a watch that waits has no buffer.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func getBuffer() *bytes.Buffer { return buffers.Get().(*bytes.Buffer) } //nolint:forcetypeassert // see buffers

// putBuffer gives a buffer back. After the error of a write HTTP/2 may still be sending it, so that
// no other answer may use it.
func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= 2*writeBufferBytes { // others would make the pool grow
		b.Reset()
		buffers.Put(b)
	}
}

// start sends the headers, before there is an event.
func (f *frameWriter) start() error {
	f.started = true
	f.dog.begin()
	setJSON(f.rw.Header())
	if _, ok := f.out.(*gzipWriter); ok {
		setPacked(f.rw.Header(), "gzip")
	}
	f.rw.WriteHeader(http.StatusOK)
	return f.flush()
}

// flush sends the written frames.
func (f *frameWriter) flush() error {
	return f.dog.watch(func() error {
		if err := f.write(); err != nil {
			return err
		}
		return f.dog.http.Flush()
	})
}

// event writes the frame of an object.
func (f *frameWriter) event(typ store.EventType, raw []byte) error {
	if !f.q.form.isStored() {
		var err error
		if f.buf, err = f.item(f.buf[:0], raw); err != nil {
			return err
		}
		return f.copied(typ, f.buf)
	}
	return f.frame(string(typ), raw)
}

// copied writes the frame of an object of which only this watch has a copy, for as long as its client takes
// to accept it. It ends a watch whose user has too many of them: the client continues from where it is.
func (f *frameWriter) copied(typ store.EventType, object []byte) error {
	if n := cap(object); n > writeBufferBytes {
		if !f.account.Hold(n) {
			return errWatchOver
		}
		defer f.account.Free(n)
		defer func() { f.buf = nil }()
	}
	return f.frame(string(typ), object)
}

// transition writes the frame of an event that has a type for the client.
func (f *frameWriter) transition(typ store.EventType, x *event) error {
	switch {
	case typ == store.Deleted && (x.Type != store.Deleted || x.Object == nil):
		raw := withRV(x.Old.JSON(), x.RV)
		if f.q.form.isStored() {
			return f.copied(typ, raw)
		}
		return f.event(typ, raw)
	case f.q.form.as == asPartial:
		f.buf = f.q.form.appendMetadata(f.buf[:0], x.partial())
		return f.copied(typ, f.buf)
	}
	return f.event(typ, x.Object.JSON())
}

// item appends an object in the watch's form, which is not the object itself.
func (f *frameWriter) item(dst, raw []byte) ([]byte, error) {
	columns := !f.headed
	f.headed = true
	return f.q.appendAlone(dst, raw, f.q.form, columns, time.Now())
}

// bookmark writes a bookmark. The initial one follows the objects that the watch began with.
func (f *frameWriter) bookmark(rv string, initial bool) error {
	annotations := ""
	if initial {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	object := []byte(`{"kind":"` + f.q.info.Kind + `","apiVersion":"` + f.q.info.APIVersion() +
		`","metadata":{"resourceVersion":"` + rv + `"` + annotations + `}}`)
	switch f.q.form.as {
	case asPartial:
		object = f.q.form.appendPartial(nil, object)
	case asTable:
		var err error
		if object, err = f.item(nil, object); err != nil {
			return err
		}
	}
	return f.frame("BOOKMARK", object)
}

// failure ends the watch with an error, as a frame.
func (f *frameWriter) failure(err error) error {
	body, err := json.Marshal(statusOf(err))
	if err != nil {
		return err
	}
	if !f.started {
		if err := f.start(); err != nil {
			return err
		}
	}
	if err := f.frame("ERROR", body); err != nil {
		return err
	}
	return f.flush()
}

// frame writes one frame: a JSON document and a line feed. A large object is not copied: each watch whose
// client does not read would hold one.
func (f *frameWriter) frame(typ string, object []byte) error {
	f.add([]byte(`{"type":"`), []byte(typ), []byte(`","object":`))
	if len(object) >= writeBufferBytes {
		err := f.dog.watch(f.write)
		if err == nil {
			err = f.dog.watch(func() error { _, err := f.out.Write(object); return err })
		}
		if err != nil {
			return err
		}
		object = nil
	}
	f.add(object, []byte("}\n"))
	if f.pending.Len() < writeBufferBytes {
		return nil
	}
	return f.dog.watch(f.write)
}

// add appends to the pending frames.
func (f *frameWriter) add(parts ...[]byte) {
	if f.pending == nil {
		f.pending = getBuffer()
	}
	for _, p := range parts {
		f.pending.Write(p)
	}
}

// write writes the pending frames at once: over HTTP/2 each write is a frame of its own, with a system
// call.
func (f *frameWriter) write() error {
	b := f.pending
	if b == nil {
		return nil
	}
	f.pending = nil
	_, err := f.out.Write(b.Bytes())
	if err == nil {
		putBuffer(b)
	}
	return err
}

// end ends the stream in good order.
func (f *frameWriter) end() error {
	z, ok := f.out.(*gzipWriter)
	if !ok || !f.started {
		return nil
	}
	return f.dog.watch(z.end)
}
