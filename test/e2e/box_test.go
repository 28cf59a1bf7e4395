package e2e

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// boxKind is what a box between an agent and its server does with watches.
type boxKind string

const (
	passes  boxKind = "passes"  // nothing
	holds   boxKind = "holds"   // answers headers, and passes nothing on
	delays  boxKind = "delays"  // passes everything on after eight seconds
	buffers boxKind = "buffers" // passes 64 KiB on at a time, and the rest at the end
	cuts    boxKind = "cuts"    // ends each watch after its headers
)

const (
	boxDelay  = 8 * time.Second
	boxBuffer = 64 << 10
)

// box is a middle box that watches pass through.
type box struct {
	mu      sync.Mutex
	kind    boxKind       // of watches that begin
	open    boxKind       // of watches that are open
	since   int           // the first watch that begins after open was set
	begun   int           // watches
	changed chan struct{} // closed when the kind changes
}

func newBox() *box { return &box{kind: passes, open: passes, changed: make(chan struct{})} }

// set sets what the box does with the watches that are open, and with those that begin.
func (b *box) set(open, begin boxKind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open, b.kind, b.since = open, begin, b.begun
	close(b.changed)
	b.changed = make(chan struct{})
}

// pass passes a watch on.
func (b *box) pass(to http.Handler, w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	x := &boxed{ResponseWriter: w, box: b, r: r, n: b.begun}
	b.begun++
	b.mu.Unlock()
	kind, _ := x.kind()
	if kind == holds || kind == cuts {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // a client that is gone needs no headers
		if kind == cuts {
			return
		}
		x.wait(holds)
		return
	}
	to.ServeHTTP(x, r)
	x.end()
}

// boxed is one watch.
type boxed struct {
	http.ResponseWriter
	box *box
	r   *http.Request
	n   int
	buf bytes.Buffer
}

// Unwrap is for http.ResponseController.
func (x *boxed) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *boxed) kind() (boxKind, <-chan struct{}) {
	x.box.mu.Lock()
	defer x.box.mu.Unlock()
	if x.n < x.box.since {
		return x.box.open, x.box.changed
	}
	return x.box.kind, x.box.changed
}

// wait waits while the watch is of a kind.
func (x *boxed) wait(while boxKind) {
	for {
		kind, changed := x.kind()
		if kind != while {
			return
		}
		select {
		case <-x.r.Context().Done():
			return
		case <-changed:
		}
	}
}

// Write implements [http.ResponseWriter].
func (x *boxed) Write(p []byte) (int, error) {
	x.wait(holds)
	kind, _ := x.kind()
	switch kind {
	case delays:
		x.sleep()
	case buffers:
		if x.buf.Len()+len(p) < boxBuffer {
			return x.buf.Write(p)
		}
	case cuts:
		return 0, http.ErrAbortHandler
	}
	if _, err := x.ResponseWriter.Write(x.buf.Bytes()); err != nil {
		return 0, err
	}
	x.buf.Reset()
	return x.ResponseWriter.Write(p)
}

func (x *boxed) end() {
	x.wait(holds)
	if kind, _ := x.kind(); kind == delays {
		x.sleep()
	}
	_, _ = x.ResponseWriter.Write(x.buf.Bytes()) // the client may be gone
}

func (x *boxed) sleep() {
	select {
	case <-x.r.Context().Done():
	case <-time.After(boxDelay):
	}
}
