package tokens

import (
	"bytes"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/munnerz/goautoneg"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/access"
)

// margin is the time that a token must have left to be repeated.
const margin = 10 * time.Second

// Handler remembers the tokens that are in the answers of Next. It is an [http.Handler], and safe for
// concurrent use. The context of a request has its caller: see [access.WithCaller].
type Handler struct {
	Next   http.Handler // passes requests on to the server, and answers 503 while that is away
	Store  *Store
	Lookup access.Lookup // finds the objects that tokens are bound to
	Clock  clock.PassiveClock
	Log    *slog.Logger

	// Repeated is called with each token that is repeated; nil for nothing.
	Repeated func()
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ask, r := read(r)
	if ask == nil {
		h.Next.ServeHTTP(w, r)
		return
	}
	a := &answer{to: w, header: http.Header{}}
	h.Next.ServeHTTP(a, r)
	switch {
	case a.passed:
		return
	case a.code == http.StatusCreated:
		if t := decode(a.header.Get("Content-Type"), a.body.Bytes()); t != nil && t.Status.Token != "" && a.header.Get("Content-Encoding") == "" {
			h.remember(ask, t)
		}
	case refuses(a.code):
		h.forget(ask)
	case a.code == 0, a.code == http.StatusBadGateway, a.code == http.StatusServiceUnavailable, a.code == http.StatusGatewayTimeout:
		if h.repeat(w, r, ask) {
			return
		}
	}
	a.pass()
}

// refuses reports whether the server that answers with a code would not issue the token now. It may
// issue it after too many requests, or one that took too long.
func refuses(code int) bool {
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

func (h *Handler) remember(ask *request, t *authenticationv1.TokenRequest) {
	err := h.Store.Update(ask.id, notAhead(h.Clock.Now(), t), func(*storedToken) *storedToken {
		return &storedToken{Caller: ask.caller, Answer: *t}
	})
	if err != nil {
		h.Log.Error("a token can't be remembered", "namespace", ask.namespace, "serviceAccount", ask.name, "error", err)
	}
}

func (h *Handler) forget(ask *request) {
	if err := h.Store.Update(ask.id, h.Clock.Now(), func(*storedToken) *storedToken { return nil }); err != nil {
		h.Log.Error("a token can't be forgotten", "error", err)
	}
}

// repeat answers with the remembered token, and returns false if there is none.
func (h *Handler) repeat(w http.ResponseWriter, r *http.Request, ask *request) bool {
	stored, err := h.Store.Get(ask.id)
	if err != nil || expiry(&stored.Answer).Sub(h.Clock.Now()) <= margin {
		return false
	}
	t := &stored.Answer
	if err := access.CheckBound(t.Status.Token, h.Lookup); err != nil {
		h.Log.Info("a remembered token is forgotten", "namespace", ask.namespace, "serviceAccount", ask.name, "reason", err)
		h.forget(ask)
		return false
	}
	contentType, body := encode(r.Header.Get("Accept"), t)
	if body == nil {
		return false
	}
	header := w.Header()
	header.Set("Cache-Control", "no-cache, private")
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Warning", `299 - "snapcache: the server can't be reached: this token is one that it has issued before"`)
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body) // if it fails, the client is gone
	if h.Repeated != nil {
		h.Repeated()
	}
	return true
}

// expiry returns when the token of an answer expires. The answer itself has an hour for the token of a
// pod, after which a kubelet asks for another one, but the server accepts it for up to a year.
func expiry(t *authenticationv1.TokenRequest) time.Time {
	if at := access.Expiry(t.Status.Token); !at.IsZero() {
		return at
	}
	return t.Status.ExpirationTimestamp.Time
}

// encode returns a TokenRequest in the form that a client accepts; nil if there is none.
func encode(accept string, t *authenticationv1.TokenRequest) (contentType string, body []byte) {
	contentType = runtime.ContentTypeJSON
	if accept != "" {
		contentType = goautoneg.Negotiate(accept, mediaTypes)
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), contentType)
	if !ok {
		return "", nil
	}
	body, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, gvk.GroupVersion()), t)
	if err != nil {
		return "", nil
	}
	return contentType, body
}

// answer keeps the answer of the next handler, until it is passed on or another one takes its place.
// One that is too long is passed on as it comes.
type answer struct {
	to     http.ResponseWriter
	header http.Header
	code   int // 0 for none yet
	body   bytes.Buffer
	passed bool
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= 200 {
		a.code = code
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.body.Len()+len(p) > maxBytes {
		a.pass()
	}
	if a.passed {
		return a.to.Write(p)
	}
	return a.body.Write(p)
}

// pass passes on the kept answer.
func (a *answer) pass() {
	if a.passed {
		return
	}
	a.passed = true
	header := a.to.Header()
	for name, values := range a.header {
		header[name] = values
	}
	if a.code != 0 {
		a.to.WriteHeader(a.code)
	}
	_, _ = a.to.Write(a.body.Bytes()) // if it fails, the client is gone
	a.body.Reset()
}
