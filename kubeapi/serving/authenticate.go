package serving

import (
	"crypto/subtle"
	"io"
	"net/http"
	"strings"
)

// unauthorized is the answer of a kube-apiserver to a request without a valid token.
const unauthorized = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}` + "\n"

// Authenticate returns a handler that serves requests with the bearer token by h, and those for the
// health of the server without it. It answers all others with 401.
func Authenticate(token string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isHealth(r.URL.Path) || subtle.ConstantTimeCompare([]byte(bearer(r)), []byte(token)) == 1 {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache, private")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, unauthorized) // if it fails, the client is gone
	})
}

func isHealth(path string) bool { return path == "/healthz" || path == "/livez" || path == "/readyz" }

// bearer returns the token of a request, empty if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return token
}
