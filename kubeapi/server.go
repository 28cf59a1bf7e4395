package kubeapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
	"github.com/snapcache/snapcache/internal/seats"
	"github.com/snapcache/snapcache/kubeapi/internal/selector"
	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// Options are the dependencies of a Server.
type Options struct {
	// Collections returns the collections that are served. It is called for each request, and the
	// same collection is always the same pointer.
	Collections func() []*Collection

	// Unknown returns the resources of collections that are to come, which the server has not named yet.
	// They are left out of the documents. Nil for none.
	Unknown func() []Unknown

	// Version returns the body of /version; nil if the server's is not known.
	Version func() []byte

	// OpenAPI answers the paths below /openapi/v3; nil for none.
	OpenAPI http.Handler

	// Scrape answers /metrics, for callers that may get that path; nil if there are none here.
	Scrape http.Handler

	// Authorize returns an error, with a Status, unless the caller of a request, which its context has,
	// may do what it asks for; nil if every caller may do everything. Watches are authorized again
	// while they last.
	Authorize func(context.Context, access.Request) error

	// Forward answers what the cache can't, see Server.Forwarding; nil for nothing.
	Forward Forwarder

	// SpoolDir is the directory for answers that are too large for memory, as unlinked files. If it
	// is empty or not writable, os.TempDir is used.
	SpoolDir string

	// Clock is nil for the real one.
	Clock clock.WithTicker

	// Metrics counts requests and watches; nil for none.
	Metrics *Metrics
}

// Server is the Kubernetes API of a set of collections. It is an [http.Handler], and safe for
// concurrent use. A watch ends with the context of its request.
type Server struct {
	opts    Options
	catalog catalog

	requests, watches *semaphore.Weighted
	lists, replays    *seats.Seats
	retries           *quota.Quota // places in time for what was refused
}

// New returns a server.
func New(opts Options) *Server {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Metrics == nil {
		opts.Metrics = NewMetrics()
	}
	scale := int64(quota.Scale())
	return &Server{
		opts: opts, catalog: catalog{collections: opts.Collections, known: map[*Collection]*served{}},
		requests: semaphore.NewWeighted(maxRequests * scale), watches: semaphore.NewWeighted(maxWatches * scale),
		lists: seats.New(listSeats, maxWaiting), replays: seats.New(replaySeats, 0), retries: quota.New(retryRate, retryRate, 1),
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch p := r.URL.Path; {
	case isHealth(p):
		h := w.Header()
		h.Set("Cache-Control", "no-cache, private")
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, "ok")
	case isVersion(p):
		s.version(w, r)
	case s.opts.OpenAPI != nil && r.Method == http.MethodGet && (p == "/openapi/v3" || strings.HasPrefix(p, "/openapi/v3/")):
		if s.allowed(w, r, path{}) {
			s.opts.OpenAPI.ServeHTTP(w, r)
		}
	case s.isScrape(r):
		if s.allowed(w, r, path{}) {
			s.opts.Scrape.ServeHTTP(w, r)
		}
	default:
		s.resource(w, r)
	}
}

// isScrape reports whether a request is for the metrics, which are never those of the server.
func (s *Server) isScrape(r *http.Request) bool {
	return s.opts.Scrape != nil && r.Method == http.MethodGet && r.URL.Path == "/metrics"
}

func isHealth(path string) bool { return path == "/healthz" || path == "/livez" || path == "/readyz" }

func isVersion(path string) bool { return path == "/version" || path == "/version/" }

func (s *Server) version(w http.ResponseWriter, r *http.Request) {
	if !s.allowed(w, r, path{}) {
		return
	}
	if r.Method != http.MethodGet {
		sendError(w, r, notAllowed())
		return
	}
	if s.opts.Version != nil {
		if body := s.opts.Version(); body != nil {
			if pretty(r, queryOf(r)) {
				body = status.Indented(body)
			}
			_ = send(w, body) // a client that is gone needs no answer
			return
		}
	}
	sendError(w, r, later("the server's version is not known yet"))
}

// resource answers a request for a resource, or for a discovery document.
func (s *Server) resource(w http.ResponseWriter, r *http.Request) {
	if !s.requests.TryAcquire(1) {
		sendError(w, r, s.refuse(RefusedRequests, "too many requests are being answered"))
		return
	}
	defer s.requests.Release(1)
	unknown := s.unknown() // before the collections are read: one may come between
	p, ok := parsePath(r.URL.Path)
	if !s.allowed(w, r, p) {
		return
	}
	if !ok {
		s.discovery(w, r, unknown, false)
		return
	}
	of, builtIn, err := s.catalog.of(p.GroupVersionResource)
	switch {
	case err != nil:
		sendError(w, r, err)
	case p.Resource == "":
		s.discovery(w, r, unknown, builtIn)
	case len(of) == 0 && unknown.find(p) != nil:
		sendError(w, r, unknown.find(p).err())
	case len(of) == 0:
		noSuchPath(w, r, builtIn)
	case of[0].Refresh != nil && of[0].lacks(r, p):
		of[0].Refresh(r.Context())
		if now, _, err := s.catalog.of(p.GroupVersionResource); err == nil && len(now) > 0 {
			of = now
		}
		s.answer(w, r, p, of)
	default:
		s.answer(w, r, p, of)
	}
}

// lacks reports whether a GET names something that the resource does not have, as far as that is known
// here: its definition may have changed.
func (s *served) lacks(r *http.Request, p path) bool {
	switch {
	case r.Method != http.MethodGet || !s.desc.Custom:
		return false
	case s.misplaced(p), s.lacksSubresource(p):
		return true
	}
	_, err := s.fields.Parse("", r.URL.Query().Get("fieldSelector"))
	return err != nil && !errors.Is(err, selector.ErrNotStored)
}

// noSuchPath answers for a path that is not served. A kube-apiserver has a Status only for the groups
// that are built in.
func noSuchPath(w http.ResponseWriter, r *http.Request, builtIn bool) {
	if builtIn {
		sendError(w, r, notServed())
		return
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// answer answers a request for one of the collections of a resource.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, p path, of []*served) {
	one := of[0]
	whole := p.subresource == "" || one.wholeObject(p.subresource)
	switch {
	case one.misplaced(p):
		noSuchPath(w, r, !one.desc.Custom)
	case one.lacksSubresource(p) && one.desc.Custom:
		sendError(w, r, apierrors.NewNotFound(groupResource(one.info), p.name))
	case one.lacksSubresource(p):
		sendError(w, r, notServed())
	case r.Method != http.MethodGet || !whole:
		sendError(w, r, notAllowed())
	case p.name != "" && !p.watch:
		s.observe(w, r, verbGet, one, func(w http.ResponseWriter) error {
			err := s.get(w, r, p, of)
			if isNotCovered(err) && s.opts.Forward != nil && s.opts.Forward.Takes(r) {
				clear(w.Header()) // the age of what is cached
				s.forward(w, r)
				return nil
			}
			return err
		})
	default:
		s.collection(w, r, p, of)
	}
}

// misplaced reports whether a path has no meaning for the resource, such as a namespace of one that has
// none.
func (s *served) misplaced(p path) bool {
	return p.namespace != "" && !s.info.Namespaced || p.name != "" && !p.watch && p.namespace == "" && s.info.Namespaced ||
		p.watch && p.subresource != ""
}

// lacksSubresource reports whether a path names a subresource that the resource does not have.
func (s *served) lacksSubresource(p path) bool {
	return p.subresource != "" && !s.wholeObject(p.subresource) && !knownSubresources.Has(p.subresource)
}

// wholeObject reports whether a GET of a subresource returns the object itself.
func (s *served) wholeObject(subresource string) bool {
	return slices.Contains(s.desc.Subresources, subresource)
}

// knownSubresources are those of a kube-apiserver that are not the object, which are not served here.
var knownSubresources = sets.New(
	"attach", "binding", "eviction", "exec", "log", "portforward", "proxy", "scale", "token", "finalize", "approval")

// observe counts a request, and answers with a Status if fn returns an error before it has written
// anything. After that the connection is cut, so that no client takes a part for the whole.
func (s *Server) observe(w http.ResponseWriter, r *http.Request, v verb, c *served, fn func(http.ResponseWriter) error) {
	counted := &counting{ResponseWriter: w, sent: s.opts.Metrics.bytes.WithLabelValues(string(v))}
	done := s.opts.Metrics.begin(v, c.info.ID)
	ended := false
	defer func() {
		if !ended { // fn panicked
			done(http.StatusInternalServerError)
		}
	}()
	err := fn(counted)
	ended = true
	switch {
	case err == nil:
	case r.Context().Err() != nil:
		done(statusClientClosed)
		panic(http.ErrAbortHandler)
	case counted.code == 0:
		sendError(counted, r, err)
	default:
		done(http.StatusInternalServerError)
		panic(http.ErrAbortHandler)
	}
	done(counted.code)
}

// statusClientClosed stands in metrics for a client that did not wait for its answer.
const statusClientClosed = 499

// counting notes the status code of an answer, and counts its bytes.
type counting struct {
	http.ResponseWriter
	code int
	sent prometheus.Counter
}

func (c *counting) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

func (c *counting) Write(p []byte) (int, error) {
	if c.code == 0 {
		c.code = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(p)
	c.sent.Add(float64(n))
	return n, err
}

// Unwrap is for [http.ResponseController].
func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }
