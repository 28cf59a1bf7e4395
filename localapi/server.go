package localapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// streamBufferBytes is how much of a stream is collected before it is sent.
const streamBufferBytes = 32 << 10

// WriteLimit is how long a client may take to accept the bytes of one write: a person may have stopped at
// a page of an answer. With each part of a stream that it accepts the time begins again.
const WriteLimit = 10 * time.Minute

// progressEvery is the shortest time between two progress lines.
const progressEvery = 200 * time.Millisecond

// Handler serves a Source over HTTP. docs/local-api.md has the requests, whose parameters are the fields
// of [KeyQuery], [ObjectQuery] and [ChangeQuery], and the errors.
//
// The status is one JSON document. The other answers are streams of JSON, one value per line. An error is
// the answer if no line was sent before it, otherwise the last line. If its reason is Corrupt,
// everything else was delivered. After any other reason the connection is also aborted, so that no
// client takes a partial answer for a complete one.
//
// A slow client does not block the store. One that accepts nothing for WriteLimit is cut.
func Handler(src Source) http.Handler {
	h := handler{src}
	const collection = "GET " + apiPath + "/collections/{id}/"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+apiPath+"/status", h.status)
	mux.Handle(collection+"index/{index}", streamed(h.index))
	mux.Handle(collection+"keys", streamed(h.keys))
	mux.Handle(collection+"objects", streamed(h.objects))
	mux.Handle(collection+"changes", streamed(h.changes))
	return mux
}

type handler struct{ src Source }

func (h handler) status(w http.ResponseWriter, r *http.Request) {
	status, err := h.src.Status(r.Context())
	if err != nil {
		sendError(w, err)
		return
	}
	send(w, http.StatusOK, status)
}

// streamed returns a handler that answers with the stream that fill fills.
func streamed(fill func(*http.Request, *stream) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &stream{w: w, buf: bufio.NewWriterSize(patient{w}, streamBufferBytes)}
		s.end(fill(r, s))
	})
}

func (h handler) index(r *http.Request, s *stream) error {
	values, err := h.src.Index(r.Context(), []string{r.PathValue("id")}, r.PathValue("index"))
	for _, v := range slices.Concat(values...) {
		if err := s.value(v); err != nil {
			break // end reports it
		}
	}
	return err
}

func (h handler) keys(r *http.Request, s *stream) error {
	var q KeyQuery
	if err := q.parameters().decode(r.URL.Query()); err != nil {
		return err
	}
	return h.src.Keys(r.Context(), []string{r.PathValue("id")}, q, func(_ string, k Key) error { return s.value(k) })
}

func (h handler) objects(r *http.Request, s *stream) error {
	var q ObjectQuery
	if err := q.parameters().decode(r.URL.Query()); err != nil {
		return err
	}
	return h.src.Objects(r.Context(), []string{r.PathValue("id")}, q, s.line)
}

func (h handler) changes(r *http.Request, s *stream) error {
	var q ChangeQuery
	if err := q.parameters().decode(r.URL.Query()); err != nil {
		return err
	}
	return h.src.Changes(r.Context(), r.PathValue("id"), q, func(c Change) error {
		line, err := encodeChange(c)
		if err == nil {
			err = s.line(line)
		}
		if err == nil && q.Follow && c.Type == Bookmark {
			err = s.flush()
		}
		return err
	})
}

// patient writes an answer with WriteLimit. Not every writer has deadlines: in tests some have none.
type patient struct{ w http.ResponseWriter }

// Write implements io.Writer.
func (p patient) Write(b []byte) (int, error) {
	p.renew()
	return p.w.Write(b)
}

func (p patient) renew() {
	_ = http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(WriteLimit))
}

// stream is an answer of many lines. Before the first one it can still become an error answer.
type stream struct {
	w       http.ResponseWriter
	buf     *bufio.Writer
	started bool
	lost    error     // why the client can't be reached
	shown   time.Time // when progress was sent
}

func (s *stream) start() {
	if !s.started {
		s.w.Header().Set("Content-Type", "application/x-ndjson")
		s.started = true
	}
}

func (s *stream) value(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.line(b)
}

func (s *stream) line(b []byte) error {
	if bytes.IndexByte(b, '\n') >= 0 {
		var one bytes.Buffer
		if err := json.Compact(&one, b); err != nil {
			return err
		}
		b = one.Bytes()
	}
	s.start()
	_, err := s.buf.Write(b)
	if err == nil {
		err = s.buf.WriteByte('\n')
	}
	s.lost = err
	return err
}

func (s *stream) flush() error {
	err := s.buf.Flush()
	if err == nil {
		err = http.NewResponseController(s.w).Flush()
	}
	s.lost = err
	return err
}

// progress sends a line of progress, unless the last one is too recent.
func (s *stream) progress(v any) {
	now := time.Now()
	if now.Sub(s.shown) < progressEvery {
		return
	}
	s.shown = now
	if s.value(v) == nil {
		_ = s.flush() // a disconnected client ends the request
	}
}

// end completes the answer, or ends it with err.
func (s *stream) end(err error) {
	patient{s.w}.renew() // for the writes of net/http
	if s.lost != nil {
		abort()
	}
	if err != nil && !s.started {
		sendError(s.w, err)
		return
	}
	s.start()
	whole := true
	if err != nil {
		last, _ := toWire(err)
		whole = last.Reason == reasonCorrupt
		if err := s.value(last); err != nil {
			abort()
		}
	}
	if err := s.buf.Flush(); err != nil {
		abort()
	}
	if !whole {
		// The lines and the reason have to leave this process before the abort.
		_ = http.NewResponseController(s.w).Flush()
		abort()
	}
}

// abort closes the connection in the middle of an answer. net/http recovers this panic without a log.
func abort() { panic(http.ErrAbortHandler) }

func sendError(w http.ResponseWriter, err error) {
	e, code := toWire(err)
	send(w, code, e)
}

func send(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		abort()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = patient{w}.Write(append(body, '\n')) // a disconnected client needs no answer
}
