package forward

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
)

const (
	// maxRequests limits the requests that are forwarded at once, each of which takes some 100 KiB. Of
	// these, and of maxUpgrades, a user gets half, or less if others have some.
	maxRequests = 500

	// maxUpgrades limits the requests that may change the protocol of their connection, such as exec. Each
	// has a connection of its own on both sides.
	maxUpgrades = 64
)

// Options are the dependencies of a Handler.
type Options struct {
	// Connected reports whether the server can be reached.
	Connected func() bool

	// Await returns a context for a request whose answer is waited for, which ends if the server has been silent for
	// longer than a grace, and a function that is called when the answer begins, or with the error of a request
	// that has none.
	Await func(ctx context.Context, grace time.Duration) (_ context.Context, answered func(error))

	// Kubeconfigs are the files with the client certificates for callers that have one, or with the token
	// for the kubelet to which the agent has issued its certificate.
	Kubeconfigs []string

	Clock clock.PassiveClock
	Log   *slog.Logger
}

// Handler forwards requests to the server. It is an [http.Handler], and safe for concurrent use. The
// context of a request has its caller. A request ends with its context.
type Handler struct {
	opts       Options
	identities []*identity
	server     atomic.Pointer[server] // nil until it is known
	buffers    buffers
	logged     rate.Sometimes

	requests, upgrades *quota.Shares // by user
}

// server is where requests are sent to.
type server struct {
	base     *url.URL
	config   *rest.Config                                                        // without credentials
	sessions *rest.Config                                                        // the same, for upgrades
	tokens   *route                                                              // for requests with a bearer token
	await    func(context.Context, time.Duration) (context.Context, func(error)) // see Options
}

// New returns a handler.
func New(opts Options) *Handler {
	h := &Handler{
		opts: opts, logged: rate.Sometimes{First: 1, Interval: time.Minute},
		requests: quota.NewShares(maxRequests), upgrades: quota.NewShares(maxUpgrades),
	}
	for _, file := range opts.Kubeconfigs {
		h.identities = append(h.identities, &identity{kubeconfig: file})
	}
	return h
}

// Connect sets the server. The configurations have its address and its authorities, but no credentials. The second one
// is for requests that may change the protocol of their connection: a person's session is not to be closed with the
// connections of a link that is in doubt.
func (h *Handler) Connect(config, sessions *rest.Config) error {
	base, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	tokens, err := newRoute(config, sessions, nil)
	if err != nil {
		return err
	}
	h.server.Store(&server{base: base, config: config, sessions: sessions, tokens: tokens, await: h.opts.Await})
	return nil
}

// Takes reports whether a request has a caller that the cluster knows.
func (h *Handler) Takes(r *http.Request) bool {
	c := access.CallerOf(r.Context())
	return c != nil && !c.Local
}

// Reaches reports whether a request would be sent to the server now.
func (h *Handler) Reaches(r *http.Request) bool {
	if !h.Takes(r) {
		return false
	}
	_, _, err := h.route(r)
	return err == nil
}

// route returns the server, and the transports with the credentials of a request's caller.
func (h *Handler) route(r *http.Request) (*server, *route, error) {
	s, caller := h.server.Load(), access.CallerOf(r.Context())
	switch {
	case caller == nil || caller.Local:
		return nil, nil, errNoCredentials
	case s == nil || !h.opts.Connected():
		return nil, nil, errDisconnected
	case !caller.Certificate:
		return s, s.tokens, nil
	}
	found, err := h.identify(r.Context(), s, caller)
	return s, found, err
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(w, r, sendError) }

// OrElse returns a handler that forwards requests without a body, and has another one answer those that the server does
// not answer.
func (h *Handler) OrElse(other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.serve(w, r, func(w http.ResponseWriter, _ error) { other.ServeHTTP(w, r) })
	})
}

// serve forwards a request. If the server does not answer it, refuse does.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, refuse func(http.ResponseWriter, error)) {
	s, to, err := h.route(r)
	if err != nil {
		refuse(w, err)
		return
	}
	places, transport := h.requests, to.requests
	if r.Header.Get("Upgrade") != "" {
		places, transport = h.upgrades, to.upgrades
	}
	user := access.CallerOf(r.Context()).User.Username
	if !places.Enter(user) {
		sendError(w, errTooMany)
		return
	}
	defer places.Leave(user)
	ctx, answered := h.opts.Await(r.Context(), graceOf(r))
	x := newExchange(w, r, answered)
	defer x.end()
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { x.sent.Store(true) }}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			s.rewrite(p)
			if x.body != nil {
				p.Out.Body = x.body // ReverseProxy's own does not end when the transport closes it
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		BufferPool:    &h.buffers,
		ErrorLog:      slog.NewLogLogger(h.opts.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, h.failed(r, x, err))
		},
	}
	proxy.ServeHTTP(x, r.WithContext(httptrace.WithClientTrace(ctx, trace)))
}

// changeGrace is how long a request that may change something is waited for over a silent link: given up, it may have
// been done. After that the connection is closed.
const changeGrace = 5 * time.Second

// graceOf returns how long a request is waited for over a silent link.
func graceOf(r *http.Request) time.Duration {
	if changes(r) {
		return changeGrace
	}
	return 0
}

// changes reports whether a request may change something. One that asks for another protocol may, whatever its method:
// exec over a WebSocket is a GET.
func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != ""
}

// rewrite addresses a request to the server, with nothing that a client may not say of itself.
func (s *server) rewrite(p *httputil.ProxyRequest) {
	u := *p.In.URL
	u.Scheme, u.Host, u.User = s.base.Scheme, s.base.Host, nil
	if prefix := strings.TrimSuffix(s.base.EscapedPath(), "/"); prefix != "" {
		u.RawPath = prefix + u.EscapedPath()
		u.Path = strings.TrimSuffix(s.base.Path, "/") + u.Path
	}
	p.Out.URL, p.Out.Host = &u, ""
	for name := range p.Out.Header {
		if vouches(name) {
			delete(p.Out.Header, name)
		}
	}
	delete(p.Out.Header, "Authorization")
	if token := p.In.Header.Get("Authorization"); token != "" && !access.CallerOf(p.In.Context()).Certificate {
		p.Out.Header.Set("Authorization", token)
	}
}

// vouches reports whether a header is one in which a proxy describes its client.
func vouches(name string) bool {
	return strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip"
}

// failed returns the answer to a request that the server did not answer.
func (h *Handler) failed(r *http.Request, x *exchange, err error) error {
	x.answered(err)
	if r.Context().Err() != nil { // the client or its rights are gone, or the agent stops
		panic(http.ErrAbortHandler)
	}
	h.warn("a request could not be forwarded", err)
	switch {
	case x.body != nil && x.body.isBroken():
		return errBody
	case !x.sent.Load():
		return errUnreachable
	case !changes(r):
		return errDisconnected
	}
	return errNoAnswer
}

// warn logs a failure, of which there may be one for each request.
func (h *Handler) warn(what string, err error) {
	h.logged.Do(func() { h.opts.Log.Warn(what+"; other failures of this minute are not logged", "error", err) })
}

// buffers is the pool of buffers of ReverseProxy.
type buffers struct{ pool sync.Pool }

const bufferBytes = 32 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferBytes]byte); ok {
		return p[:]
	}
	return make([]byte, bufferBytes)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferBytes]byte)(p)) }
