package kubeapi

import (
	"context"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
	"github.com/snapcache/snapcache/internal/seats"
	"github.com/snapcache/snapcache/kubeapi/documents"
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
	// may make it; nil if every caller may do everything. Watches are authorized again
	// while they last.
	Authorize func(context.Context, access.Request) error

	// Review returns the decision that Authorize would make on a request of the context's caller, as the
	// status of a review; nil as Authorize. Its error has a Status.
	Review func(context.Context, access.Request) (authorizationv1.SubjectAccessReviewStatus, error)

	// OwnRules returns the rules of the context's caller in a namespace, as the status of a review. If not
	// all are known, they are those about the cached resources. Nil as Authorize.
	OwnRules func(ctx context.Context, namespace string, cached []schema.GroupVersionResource) authorizationv1.SubjectRulesReviewStatus

	// Forward answers requests that the cache can't, see Server.WithBodies; nil if nothing does.
	Forward Forwarder

	// Documents are the server's discovery documents, for callers whose requests are forwarded, while the server does
	// not answer; nil for none.
	Documents *documents.Mirror

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
	retries           *quota.Quota // places in time for refused requests
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
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.answer(w, s.resolve(r)) }

// answer answers a request as it was decided.
func (s *Server) answer(w http.ResponseWriter, r *request) {
	d := r.decision
	if d.by.limited() {
		if !s.requests.TryAcquire(1) {
			sendError(w, r, s.refuse(RefusedRequests, "too many requests are being answered"))
			return
		}
		defer s.requests.Release(1)
	}
	if !d.open && !s.allowed(w, r) {
		return
	}
	if d.refresh != nil {
		d.refresh(r.Context())
		if now := s.route(r); len(now.of) > 0 {
			d = now
		}
	}
	if d.by.answers() {
		defer s.opts.Metrics.programs.begin(r)()
	}
	switch d.by {
	case byServer:
		s.forward(w, r)
	case byHealth:
		sendHealth(w)
	case byVersion, byOpenAPI, byDiscovery:
		s.document(w, r, d.by)
	case byMetrics:
		s.opts.Scrape.ServeHTTP(w, r.Request)
	case byReview:
		s.review(w, r)
	case byObject:
		s.observe(w, r, d.of[0], func(w http.ResponseWriter) error {
			err := s.get(w, r, d)
			if isNotCovered(err) && d.elsewhere {
				clear(w.Header()) // the age of the cache
				s.forward(w, r)
				return nil
			}
			return err
		})
	case byCollection:
		s.observe(w, r, d.of[0], func(w http.ResponseWriter) error { return s.collection(w, r, d) })
	case refused:
		sendError(w, r, d.err)
	}
}

func sendHealth(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache, private")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, "ok")
}

// document answers a request for a document about the API itself.
func (s *Server) document(w http.ResponseWriter, r *request, by answerer) {
	switch by {
	case byVersion:
		s.version(w, r)
	case byOpenAPI:
		s.opts.OpenAPI.ServeHTTP(w, r.Request)
	default:
		s.discovery(w, r)
	}
}

func (s *Server) version(w http.ResponseWriter, r *request) {
	if r.Method != http.MethodGet {
		sendError(w, r, notAllowed())
		return
	}
	if s.opts.Version != nil {
		if body := s.opts.Version(); body != nil {
			if r.pretty() {
				body = status.Indented(body)
			}
			_ = send(w, body) // a client that is gone needs no answer
			return
		}
	}
	sendError(w, r, later("the server's version is not known yet"))
}

// observe counts a request, and answers with a Status if fn returns an error before it has written
// anything. After that the connection is cut, so that no client takes a part for the whole.
func (s *Server) observe(w http.ResponseWriter, r *request, c *served, fn func(http.ResponseWriter) error) {
	counted := &counting{ResponseWriter: w, sent: s.opts.Metrics.bytes.WithLabelValues(string(r.verb))}
	done := s.opts.Metrics.begin(r.verb, c.info.ID)
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
