package e2e

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// boxKind is what a box between an agent and its server does with requests.
type boxKind string

const (
	passes  boxKind = "passes"  // nothing
	holds   boxKind = "holds"   // answers headers, and passes nothing on
	delays  boxKind = "delays"  // passes everything on after eight seconds
	buffers boxKind = "buffers" // passes 64 KiB on at a time, and the rest at the end
	cuts    boxKind = "cuts"    // ends each answer after its headers
	replays boxKind = "replays" // sends the first answer of that path and class again; of a watch, one event
)

// The classes of requests. Probes are all other ones: the guards' and a reader's questions, the identity.
const (
	watches = "watches"
	lists   = "lists"
	probes  = "probes"
)

func classOf(r *http.Request) string {
	switch q := r.URL.Query(); {
	case q.Has("watch"):
		return watches
	case q.Get("limit") == "500":
		return lists
	}
	return probes
}

const (
	boxDelay  = 8 * time.Second
	boxBuffer = 64 << 10
)

// box is a middle box that requests pass through. It does something to those of one class.
type box struct {
	mu      sync.Mutex
	class   string
	event   string                                // part of the event of a watch that is sent again
	first   map[string]*httptest.ResponseRecorder // the first answers, by class and path
	kind    boxKind                               // of watches that begin
	open    boxKind                               // of watches that are open
	since   int                                   // the first watch that begins after open was set
	begun   int                                   // watches
	changed chan struct{}                         // closed when the kind changes
}

func newBox() *box {
	return &box{class: watches, kind: passes, open: passes, changed: make(chan struct{}), first: make(map[string]*httptest.ResponseRecorder)}
}

// record returns a recorder for the first answer to such a request; nil for a later one.
func (b *box) record(r *http.Request) *httptest.ResponseRecorder {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := classOf(r) + " " + r.URL.Path
	if b.first[key] != nil {
		return nil
	}
	b.first[key] = httptest.NewRecorder()
	return b.first[key]
}

// replay sends the first answer again, and reports whether there is one.
func (b *box) replay(w http.ResponseWriter, r *http.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.first[classOf(r)+" "+r.URL.Path]
	if first == nil {
		return false
	}
	maps.Copy(w.Header(), first.Header())
	w.WriteHeader(first.Code)
	_, _ = w.Write(first.Body.Bytes()) // the client may be gone
	_ = http.NewResponseController(w).Flush()
	return true
}

// set sets what the box does with the watches that are open, and with those that begin.
func (b *box) set(open, begin boxKind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open, b.kind, b.since = open, begin, b.begun
	close(b.changed)
	b.changed = make(chan struct{})
}

// pass passes a request on.
func (b *box) pass(to http.Handler, w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	if classOf(r) != b.class {
		b.mu.Unlock()
		to.ServeHTTP(w, r)
		return
	}
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
	if kind == replays && b.replay(w, r) {
		if b.class == watches {
			x.wait(replays)
		}
		return
	}
	x.first = b.record(r)
	to.ServeHTTP(x, r)
	x.end()
}

// boxed is one request.
type boxed struct {
	http.ResponseWriter
	first *httptest.ResponseRecorder // nil for a later one
	box   *box
	r     *http.Request
	n     int
	buf   bytes.Buffer
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

// WriteHeader implements [http.ResponseWriter].
func (x *boxed) WriteHeader(code int) {
	if x.first != nil {
		x.box.mu.Lock()
		maps.Copy(x.first.Header(), x.Header())
		x.first.WriteHeader(code)
		x.box.mu.Unlock()
	}
	x.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (x *boxed) Write(p []byte) (int, error) {
	if x.first != nil {
		x.box.mu.Lock()
		// Of a watch, one event: what comes later would undo it.
		if x.box.class != watches || x.first.Body.Len() == 0 && bytes.Contains(p, []byte(x.box.event)) {
			_, _ = x.first.Write(p) // to memory
		}
		x.box.mu.Unlock()
	}
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
