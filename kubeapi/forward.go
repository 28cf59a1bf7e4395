package kubeapi

import (
	"bufio"
	"context"
	"net"
	"net/http"
	urlpath "path"
	"slices"
	"strconv"
	"strings"

	"github.com/snapcache/snapcache/access"
)

// Forwarder sends requests to the server, with the credentials of their callers. It must be safe for
// concurrent use.
type Forwarder interface {
	// Takes reports whether ServeHTTP answers the requests of this caller that the cache can't answer.
	// If not, they are refused as if nothing was forwarded.
	Takes(*http.Request) bool

	// Reaches reports whether ServeHTTP would send a request of this caller to the server now.
	Reaches(*http.Request) bool

	http.Handler
}

// Forwarding returns a handler that forwards the requests that s does not answer from the cache, and
// serves the others by local, which is s or a handler around it. Without Options.Forward it is local.
//
// A forwarded request is not authorized here: the server does that, by the path and the credentials as
// they came. Whatever is answered here is authorized here, and so are documents wherever they come
// from: the decision is then remembered for the time without the server. A watch is authorized again
// here while it lasts, wherever its events come from.
func (s *Server) Forwarding(local http.Handler) http.Handler {
	if s.opts.Forward == nil {
		return local
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !s.forwards(r):
			local.ServeHTTP(w, r)
		case !isDocument(r) || s.allowed(w, r, path{}):
			s.forward(w, r)
		}
	})
}

// forwards reports whether a request is one for the server.
func (s *Server) forwards(r *http.Request) bool {
	f := s.opts.Forward
	switch {
	case isHealth(r.URL.Path), s.isScrape(r), !f.Takes(r):
		return false
	case r.Method != http.MethodGet, isOdd(r):
		return true
	case isDocument(r):
		return f.Reaches(r) // the server has more documents
	}
	p, ok := parsePath(r.URL.Path)
	if !ok {
		return true
	}
	of, _, err := s.catalog.of(p.GroupVersionResource)
	return err == nil && (len(of) == 0 || !covers(r, p, of))
}

// isDocument reports whether a request is for a document about what is served.
func isDocument(r *http.Request) bool {
	if r.Method != http.MethodGet || isOdd(r) {
		return false
	}
	at := r.URL.Path
	p, _ := parsePath(at)
	return isVersion(at) || strings.HasPrefix(at, "/openapi/") || documented(at) && p.Resource == ""
}

// isOdd reports whether a path is one that servers may read in different ways: the server judges it.
func isOdd(r *http.Request) bool {
	p := strings.TrimSuffix(r.URL.Path, "/")
	return p != "" && urlpath.Clean(p) != p || strings.Contains(strings.ToLower(r.URL.RawPath), "%2f")
}

// covers reports whether the collections of a resource cover a GET. One object may be outside of them
// all the same, which is known when it is not found.
func covers(r *http.Request, p path, of []*served) bool {
	if of[0].misplaced(p) || p.subresource != "" && !of[0].wholeObject(p.subresource) {
		return false
	}
	q := query{path: p}
	if p.name == "" || p.watch {
		return !isNotCovered(q.cover(r, of))
	}
	return slices.ContainsFunc(of, func(s *served) bool { return s.has(p.namespace) })
}

// forward forwards a request, and counts it.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	m := s.opts.Metrics
	m.forwarding.Inc()
	v := forwardedVerb(r)
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
	s.opts.Forward.ServeHTTP(counted, r.WithContext(ctx))
	ended = true
}

// whileAllowed returns a context for a forwarded request. That of a watch ends when the server would
// refuse it: the server itself decides on a watch only once. The other streams, such as exec and log,
// last as they do without the cache.
func (s *Server) whileAllowed(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	p, _ := parsePath(r.URL.Path)
	mayContinue := s.mayContinue(r, p, true)
	if mayContinue == nil || p.Resource == "" || requestVerb(r, p) != string(verbWatch) {
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
func forwardedVerb(r *http.Request) string {
	p, _ := parsePath(r.URL.Path)
	switch v := requestVerb(r, p); {
	case v == "":
		return "other"
	case p.Resource == "" && v == string(verbList):
		return string(verbGet)
	default:
		return v
	}
}

// hijackable is a counting for a connection that changes its protocol.
type hijackable struct{ counting }

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err == nil {
		h.code = http.StatusSwitchingProtocols
	}
	return conn, buffer, err
}
