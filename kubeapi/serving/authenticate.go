package serving

import (
	"io"
	"net/http"

	"github.com/snapcache/snapcache/access"
)

// unauthorized is the answer of a kube-apiserver to a request without a valid token.
const unauthorized = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}` + "\n"

// Authenticate returns a handler that serves requests by h, with their caller in the context. Others get
// 401 with a kube-apiserver's Status, but health is for everybody.
func Authenticate(a *access.Authenticator, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isHealth(r.URL.Path) {
			h.ServeHTTP(w, r)
			return
		}
		if caller, err := a.Caller(r); err == nil {
			h.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), caller)))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache, private")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, unauthorized) // if it fails, the client is gone
	})
}

// Local returns a handler that serves requests by h as those of a caller that this machine lets in.
func Local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), &access.Caller{Local: true})))
	})
}

func isHealth(path string) bool { return path == "/healthz" || path == "/livez" || path == "/readyz" }
