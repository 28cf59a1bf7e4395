package statuspage

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/localapi"
)

const (
	// refreshEvery is how often the status is read for a viewer.
	refreshEvery = time.Second

	// keepAlive is how long a stream may be silent: a proxy may close a silent connection.
	keepAlive = 15 * time.Second

	// sendTimeout limits how long a browser may take to receive an event.
	sendTimeout = 10 * time.Second

	// maxViewers limits the streams open at the same time. The page itself has no limit.
	maxViewers = 8
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	style string
	//go:embed page.js
	script string

	page = template.Must(template.New("page").Parse(pageHTML))

	// policy is the page's Content-Security-Policy.
	policy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		hash(style), hash(script))
)

func hash(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Options are the settings of a page. Source is required.
type Options struct {
	// Source provides the status. It has to be a running agent's.
	Source localapi.Source

	// Table returns the columns of a collection's objects besides their names, and the function that
	// returns an object's cells, from its JSON: see kubeapi.Server.Table. Nil for no columns.
	Table func(collection string) (columns []string, cells func(raw []byte) ([]string, error))

	// Node is the name of the machine, to distinguish several pages.
	Node string

	// Bare leaves out texts of problems, addresses, paths and selectors, which the metrics don't contain
	// either. Set it if other users than the agent's can read the page.
	Bare bool

	// Done ends the streams; nil for never.
	Done <-chan struct{}

	// Clock is nil for the real one.
	Clock clock.WithTicker
}

// Handler serves the page:
//
//	GET /         the page
//	GET /events   a stream of server-sent events, each with the page's content
//
// and, unless Bare is set, the pages of the cached objects:
//
//	GET /browse/?namespace=                               the collections
//	GET /browse/{collection}?namespace=&name=&after=      the objects of one, name by prefix
//	GET /browse/{collection}/object?key=                  an object
//	GET /browse/{collection}/changes                      the changes of the last hour
//
// If eight viewers are connected, the stream is refused (503), and the page retries.
func Handler(opts Options) http.Handler {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	h := &handler{opts: opts, viewers: make(chan struct{}, maxViewers)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.page)
	mux.HandleFunc("GET /events", h.events)
	if !opts.Bare {
		h.browse(mux)
	}
	return mux
}

type handler struct {
	opts    Options
	viewers chan struct{} // one element per open stream
}

// shown is the input of the template.
type shown struct {
	Style  template.CSS
	Script template.JS
	view
}

func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	v, err := h.view(r.Context())
	if err != nil {
		headers(w, policy)
		cause := err.Error()
		if h.opts.Bare {
			cause = "the agent's log has the cause"
		}
		http.Error(w, "the status can't be read: "+cause, http.StatusInternalServerError)
		return
	}
	render(w, policy, http.StatusOK, page, shown{template.CSS(style), template.JS(script), v}) //nolint:gosec // both are embedded
}

// render answers with a page.
func render(w http.ResponseWriter, policy string, code int, t *template.Template, content any) {
	headers(w, policy)
	var body bytes.Buffer
	if err := t.Execute(&body, content); err != nil {
		http.Error(w, "the page can't be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes()) // a disconnected browser needs no answer
}

func headers(w http.ResponseWriter, policy string) {
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
}

func (h *handler) view(ctx context.Context) (view, error) {
	s, err := h.opts.Source.Status(ctx)
	if err != nil {
		return view{}, err
	}
	if h.opts.Bare {
		s = bare(s)
	}
	v := newView(s, h.opts.Node, h.opts.Clock.Now())
	if !h.opts.Bare {
		v.Browse = "/browse/"
		for i, c := range v.Collections {
			v.Collections[i].Link = link(v.Browse, c.ID, "")
		}
	}
	return v, nil
}

func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	headers(w, policy)
	select {
	case h.viewers <- struct{}{}:
		defer func() { <-h.viewers }()
	default:
		http.Error(w, "too many viewers: close another page", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := h.opts.Clock.NewTicker(refreshEvery)
	defer ticker.Stop()
	var last []byte
	var sent time.Time
	for {
		event, err := h.event(r.Context())
		if err != nil {
			return // the page reconnects, and gets the error
		}
		if now := h.opts.Clock.Now(); !bytes.Equal(event, last) {
			last, sent = event, now
		} else if event = nil; now.Sub(sent) >= keepAlive {
			event, sent = []byte(":\n\n"), now
		}
		if event != nil && send(w, event) != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-h.opts.Done:
			return
		case <-ticker.C():
		}
	}
}

// event returns the content as a server-sent event. As JSON it is one line.
func (h *handler) event(ctx context.Context) ([]byte, error) {
	v, err := h.view(ctx)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	if err := page.ExecuteTemplate(&content, "content", v); err != nil {
		return nil, err
	}
	line, err := json.Marshal(content.String())
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "data: %s\n\n", line), nil
}

// send writes to a browser that may have stopped reading.
func send(w http.ResponseWriter, b []byte) error {
	c := http.NewResponseController(w)
	if err := c.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	return c.Flush()
}

// LocalHost refuses requests (403) whose Host is a public name. Such a name may resolve to a
// loopback address (DNS rebinding), and the page would then belong to the origin of another site.
// Loopback addresses and names without a dot, which tunnels and the agent's own client use, are
// accepted.
func LocalHost(next http.Handler) http.Handler {
	return onlyHosts(next, netip.Addr.IsLoopback)
}

// KnownHost refuses requests as LocalHost does, but accepts every address, and some names. It is for
// the paths of programs: a browser must not read them for another site.
func KnownHost(next http.Handler, names ...string) http.Handler {
	return onlyHosts(next, netip.Addr.IsValid, names...)
}

func onlyHosts(next http.Handler, accepts func(netip.Addr) bool, names ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
		known := err == nil && accepts(ip) || err != nil && !strings.Contains(host, ".") ||
			slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
		if !known {
			http.Error(w, "ask for localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
