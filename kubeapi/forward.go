package kubeapi

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strconv"

	"github.com/snapcache/snapcache/access"
)

// Forwarder sends requests to the server, with the credentials of their callers. It must be safe for
// concurrent use.
type Forwarder interface {
	// Takes reports whether requests of this caller may be forwarded. If not, they are refused as if
	// forwarding were off.
	Takes(*http.Request) bool

	// Reaches reports whether ServeHTTP would send a request of this caller to the server now.
	Reaches(*http.Request) bool

	http.Handler

	// OrElse returns a handler that forwards requests without a body, and has another one answer those that the server
	// does not answer.
	OrElse(http.Handler) http.Handler
}

// WithBodies returns a handler of the requests whose body counts, forwarded ones and reviews, see route. It
// serves the others by local, which is s or a handler around it.
func (s *Server) WithBodies(local http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := s.resolve(r)
		if x.decision.by == byServer || x.decision.by == byReview {
			s.answer(w, x)
			return
		}
		local.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), resolved{s}, x)))
	})
}

// forward forwards a request, and counts it.
func (s *Server) forward(w http.ResponseWriter, r *request) {
	m := s.opts.Metrics
	m.forwarding.Inc()
	m.programs.forwarded(r)
	v := r.forwardedVerb()
	counted := &hijackable{counting{ResponseWriter: w, sent: m.bytes.WithLabelValues(v)}}
	ctx, cancel := s.whileAllowed(r)
	ended := false
	defer func() {
		m.forwarding.Dec()
		code := counted.code
		switch {
		case r.Context().Err() == nil && ctx.Err() != nil:
			code = http.StatusForbidden
		case ended:
		case r.Context().Err() != nil:
			code = statusClientClosed
		default: // the answer was cut
			code = http.StatusBadGateway
		}
		m.forwarded.WithLabelValues(v, strconv.Itoa(code)).Inc()
		cancel()
	}()
	handler := http.Handler(s.opts.Forward)
	if r.isDocument() && r.Method == http.MethodGet {
		if s.opts.Documents != nil && r.kind == forDiscovery {
			s.opts.Documents.Note()
		}
		handler = s.opts.Forward.OrElse(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { s.document(w, r, s.documentBy(r)) }))
	}
	handler.ServeHTTP(counted, r.WithContext(ctx))
	ended = true
}

// whileAllowed returns a context for a forwarded request. A watch's ends when the server would refuse
// it: the server itself decides on a watch only once. The other streams, such as exec and log,
// last as they do without the cache.
func (s *Server) whileAllowed(r *request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	mayContinue := s.mayContinue(r, true)
	if mayContinue == nil || r.kind != forResource || r.verb != verbWatch {
		return ctx, cancel
	}
	ticker := s.opts.Clock.NewTicker(access.RecheckInterval)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				if mayContinue() != nil {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}

// forwardedVerb returns the verb of a forwarded request, one of a few.
func (r *request) forwardedVerb() string {
	switch {
	case r.verb == "":
		return "other"
	case r.verb == verbList && r.kind != forResource:
		return string(verbGet)
	}
	return string(r.verb)
}

// hijackable is a counting for exec, port-forward and the like: the handler may take over the connection.
type hijackable struct{ counting }

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err == nil {
		h.code = http.StatusSwitchingProtocols
	}
	return conn, buffer, err
}
