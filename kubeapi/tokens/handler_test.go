package tokens

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/snapcache/snapcache/access"
)

// TestRepeatedTokenEncoding checks that a token is repeated in the form that the caller accepts,
// whichever one it came in.
func TestRepeatedTokenEncoding(t *testing.T) {
	for _, tc := range []struct{ name, first, accept, want string }{
		{"JSON", asJSON, asJSON, asJSON},
		{"protobuf", packed, packed + "," + asJSON, packed},
		{"protobuf, then JSON", packed, asJSON, asJSON},
		{"JSON, then protobuf", asJSON, packed, packed},
		{"anything", packed, "*/*", asJSON},
		{"no Accept", packed, "", asJSON},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			token, online := w.send(kubelet(tc.first))
			require.Empty(t, online.Header().Get("Warning"))
			require.Equal(t, "server", online.Header().Get("X-From"))
			w.code = http.StatusServiceUnavailable
			again, offline := w.send(kubelet(tc.first, func(a *asking) { a.Header.Set("Accept", tc.accept) }))
			require.Equal(t, token, again)
			require.Equal(t, 1, w.issued)
			require.Equal(t, 1, w.repeated)
			require.Equal(t, tc.want, offline.Header().Get("Content-Type"))
			require.Contains(t, offline.Header().Get("Warning"), "issued before")
			require.Empty(t, offline.Header().Get("X-From"), "nothing of the other answer is left")
			want, got := decode(tc.first, online.Body.Bytes()), decode(tc.want, offline.Body.Bytes())
			got.TypeMeta, want.TypeMeta = want.TypeMeta, got.TypeMeta
			require.Equal(t, want.Spec, got.Spec)
			require.True(t, want.Status.ExpirationTimestamp.Equal(&got.Status.ExpirationTimestamp))

			w.code = http.StatusCreated
			fresh, _ := w.send(kubelet(tc.first))
			require.NotEqual(t, token, fresh, "the server answers while it can be reached")
			w.code = http.StatusServiceUnavailable
			again, _ = w.send(kubelet(tc.first))
			require.Equal(t, fresh, again, "the newest token is repeated")
		})
	}
}

// TestSameRequest checks which requests a token is repeated to.
func TestSameRequest(t *testing.T) {
	for _, tc := range []struct {
		name     string
		change   func(*asking)
		repeated bool
	}{
		{"the same", func(*asking) {}, true},
		{"another lifetime", func(a *asking) { *a.spec.ExpirationSeconds = 600 }, true},
		{"no lifetime", func(a *asking) { a.spec.ExpirationSeconds = nil }, true},
		{"audiences in another order", func(a *asking) { a.spec.Audiences = []string{"b", "a", "b"} }, true},
		{"a new certificate of the user", func(a *asking) { a.caller.User.Extra["authentication.kubernetes.io/credential-id"][0] = "X509SHA256=2" }, true},
		{"a timeout", func(a *asking) { a.URL.RawQuery = "timeout=10s" }, true},

		{"another user", func(a *asking) { a.caller.User.Username = "system:node:edge-2" }, false},
		{"another UID of the user", func(a *asking) { a.caller.User.UID = "1" }, false},
		{"another group", func(a *asking) { a.caller.User.Groups[0] = "system:masters" }, false},
		{"another extra value", func(a *asking) { a.caller.User.Extra["x"] = authenticationv1.ExtraValue{"y"} }, false},
		{"a local caller", func(a *asking) { a.caller = &access.Caller{Local: true} }, false},
		{"no caller", func(a *asking) { a.caller = nil }, false},
		{"another audience", func(a *asking) { a.spec.Audiences[1] = "c" }, false},
		{"one audience more", func(a *asking) { a.spec.Audiences = append(a.spec.Audiences, "c") }, false},
		{"one audience less", func(a *asking) { a.spec.Audiences = a.spec.Audiences[:1] }, false},
		{"no audience", func(a *asking) { a.spec.Audiences = nil }, false},
		{"another UID of the pod", func(a *asking) { a.spec.BoundObjectRef.UID = "p2" }, false},
		{"no UID of the pod", func(a *asking) { a.spec.BoundObjectRef.UID = "" }, false},
		{"another pod", func(a *asking) { a.spec.BoundObjectRef.Name = "till-1" }, false},
		{"a node", func(a *asking) { a.spec.BoundObjectRef.Kind = "Node" }, false},
		{"nothing bound", func(a *asking) { a.spec.BoundObjectRef = nil }, false},
		{"another service account", func(a *asking) { a.URL.Path = strings.Replace(path, "till", "desk", 1) }, false},
		{"another namespace", func(a *asking) { a.URL.Path = strings.Replace(path, "shop", "bank", 1) }, false},
		{"another version", func(a *asking) { a.URL.Path = strings.Replace(path, "v1", "v2", 1) }, false},
		{"another subresource", func(a *asking) { a.URL.Path = strings.Replace(path, "/token", "/status", 1) }, false},
		{"a double slash", func(a *asking) { a.URL.Path = strings.Replace(path, "/shop", "//shop", 1) }, false},
		{"an encoded slash", func(a *asking) { a.URL.RawPath = strings.Replace(path, "/till", "%2Ftill", 1) }, false},
		{"without effect", func(a *asking) { a.URL.RawQuery = "dryRun=All" }, false},
		{"another method", func(a *asking) { a.Method = http.MethodPut }, false},
		{"an encoded body", func(a *asking) { a.Header.Set("Content-Encoding", "gzip") }, false},
		{"a form that does not exist", func(a *asking) { a.Header.Set("Accept", "application/cbor") }, false},
		{"a body of another form", func(a *asking) { a.Header.Set("Content-Type", "application/yaml") }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			token, _ := w.send(kubelet(asJSON))
			w.code = http.StatusServiceUnavailable
			again, out := w.send(kubelet(asJSON, tc.change))
			if tc.repeated {
				require.Equal(t, token, again)
				return
			}
			require.Equal(t, http.StatusServiceUnavailable, out.Code)
			require.Equal(t, "refused by the server", out.Body.String())
			require.Equal(t, "server", out.Header().Get("X-From"))
			again, _ = w.send(kubelet(asJSON))
			require.Equal(t, token, again, "the token stays stored for the other request")
		})
	}
}

// TestUnusualRequestNotRemembered checks that nothing is kept of a request that is no usual one.
func TestUnusualRequestNotRemembered(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*asking)
	}{
		{"a local caller", func(a *asking) { a.caller = &access.Caller{Local: true} }},
		{"no caller", func(a *asking) { a.caller = nil }},
		{"without effect", func(a *asking) { a.URL.RawQuery = "dryRun=All" }},
		{"large", func(a *asking) { a.spec.Audiences = []string{strings.Repeat("a", maxBytes)} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			token, _ := w.send(kubelet(asJSON, tc.change))
			require.NotEmpty(t, token)
			require.Zero(t, w.stored())
		})
	}
	t.Run("large with spaces", func(t *testing.T) {
		w := newWorld(t)
		r := kubelet(asJSON)
		r.Body = io.NopCloser(io.MultiReader(r.Body, strings.NewReader(strings.Repeat(" ", maxBytes))))
		token, _ := w.send(r)
		require.NotEmpty(t, token)
		require.Zero(t, w.stored())
	})
}

// TestTokenNotRepeated checks when a token is not repeated any more, though the same is asked for.
func TestTokenNotRepeated(t *testing.T) {
	for _, tc := range []struct {
		name            string
		change          func(*world)
		repeated, stays bool
	}{
		{"at once", func(*world) {}, true, true},
		{"shortly before it expires", func(w *world) { w.clock.SetTime(start.Add(time.Hour - margin - time.Second)) }, true, true},
		{"too shortly before it expires", func(w *world) { w.clock.SetTime(start.Add(time.Hour - margin)) }, false, true},
		{"after it has expired", func(w *world) { w.clock.SetTime(start.Add(2 * time.Hour)) }, false, true},
		{"after the answer's time, before the token's own", func(w *world) { w.clock.SetTime(start.Add(300 * 24 * time.Hour)) }, true, true},
		{"after the token's own time", func(w *world) { w.clock.SetTime(start.Add(366 * 24 * time.Hour)) }, false, true},
		{"with a clock that was set back", func(w *world) { w.clock.SetTime(start.Add(-1000 * time.Hour)) }, true, true},
		{"if nothing is known of its objects", func(w *world) { clear(w.objects) }, true, true},
		{"if its pod is deleted", func(w *world) { w.objects["pods shop/till-0"] = "-" }, false, false},
		{"if its pod is another one", func(w *world) { w.objects["pods shop/till-0"] = "p2" }, false, false},
		{"if its service account is deleted", func(w *world) { w.objects["serviceaccounts shop/till"] = "-" }, false, false},
		{"if its service account is another one", func(w *world) { w.objects["serviceaccounts shop/till"] = "sa2" }, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			if strings.Contains(tc.name, "the token's own") {
				w.expires = start.Add(365 * 24 * time.Hour)
			}
			token, _ := w.send(kubelet(packed))
			w.code = http.StatusServiceUnavailable
			before := len(w.objects)
			tc.change(w)
			again, out := w.send(kubelet(packed))
			if !tc.repeated {
				require.Equal(t, http.StatusServiceUnavailable, out.Code)
			} else {
				require.Equal(t, token, again)
			}
			w.clock.SetTime(start)
			w.objects["pods shop/till-0"], w.objects["serviceaccounts shop/till"] = "p1", "sa1"
			require.Len(t, w.objects, before)
			again, _ = w.send(kubelet(packed))
			require.Equal(t, tc.stays, again == token, "the token stays stored")
		})
	}
}

// TestServerAnswers checks what becomes of the server's answers, and of the remembered token.
func TestServerAnswers(t *testing.T) {
	for _, tc := range []struct {
		code            int // 0 for no answer
		repeated, stays bool
	}{
		{0, true, true},
		{http.StatusBadGateway, true, true},
		{http.StatusServiceUnavailable, true, true},
		{http.StatusGatewayTimeout, true, true},
		{http.StatusInternalServerError, false, true},
		{http.StatusTooManyRequests, false, true},
		{http.StatusRequestTimeout, false, true},
		{http.StatusBadRequest, false, false},
		{http.StatusUnauthorized, false, false},
		{http.StatusForbidden, false, false},
		{http.StatusNotFound, false, false},
		{http.StatusConflict, false, false},
		{http.StatusUnprocessableEntity, false, false},
	} {
		t.Run(fmt.Sprint(tc.code), func(t *testing.T) {
			w := newWorld(t)
			token, _ := w.send(kubelet(packed))
			w.code = tc.code
			again, out := w.send(kubelet(packed))
			if tc.repeated {
				require.Equal(t, token, again)
			} else {
				require.Equal(t, tc.code, out.Code)
				require.Equal(t, "refused by the server", out.Body.String())
				require.Equal(t, "server", out.Header().Get("X-From"))
			}
			w.code = http.StatusServiceUnavailable
			again, _ = w.send(kubelet(packed))
			require.Equal(t, tc.stays, again == token, "the token stays stored")
		})
	}
}

// TestRequestPassedUnchanged checks that the next handler gets the request as it came, and the caller
// its answer.
func TestRequestPassedUnchanged(t *testing.T) {
	for _, tc := range []struct {
		name string
		body string
	}{
		{"empty", ""},
		{"not a TokenRequest", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`},
		{"not JSON", "hello"},
		{"spaces", `{ "spec" : { "audiences" : [ "a" ] } , "unknown" : 1 }`},
		{"large", strings.Repeat("x", 3*maxBytes)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			r := kubelet(asJSON)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(tc.body)), int64(len(tc.body))
			header := r.Header.Clone()
			_, _ = w.send(r)
			require.Equal(t, tc.body, string(w.body))
			require.Equal(t, header, w.header)
		})
	}
	t.Run("a body that fails", func(t *testing.T) {
		w := newWorld(t)
		r := kubelet(asJSON)
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), errReader{}))
		_, out := w.send(r)
		require.Equal(t, http.StatusBadRequest, out.Code)
		require.Contains(t, out.Body.String(), io.ErrUnexpectedEOF.Error())
	})
	t.Run("a large answer", func(t *testing.T) {
		w := newWorld(t)
		w.pad = strings.Repeat("a", 2*maxBytes)
		token, out := w.send(kubelet(packed))
		require.NotEmpty(t, token)
		require.Greater(t, out.Body.Len(), 2*maxBytes)
		require.Zero(t, w.stored())
	})
	t.Run("an answer in pieces", func(t *testing.T) {
		w := newWorld(t)
		pieces := strings.Repeat("0123456789", 10_000)
		w.Next = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusEarlyHints)
			for _, p := range bytes.SplitAfter([]byte(pieces), []byte("9")) {
				n, err := rw.Write(p)
				require.NoError(t, err)
				require.Len(t, p, n)
			}
		})
		_, out := w.send(kubelet(packed))
		require.Equal(t, http.StatusOK, out.Code)
		require.Equal(t, pieces, out.Body.String())
	})
	t.Run("an answer that is cut", func(t *testing.T) {
		w := newWorld(t)
		w.Next = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			whole := httptest.NewRecorder()
			w.serve(whole, r)
			rw.Header().Set("Content-Type", packed)
			rw.WriteHeader(http.StatusCreated)
			_, _ = rw.Write(whole.Body.Bytes()[:whole.Body.Len()-10])
			panic(http.ErrAbortHandler)
		})
		require.PanicsWithError(t, http.ErrAbortHandler.Error(), func() { w.send(kubelet(packed)) })
		require.Zero(t, w.stored())
	})
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestConcurrent checks that callers which ask at once get their own tokens, while the server comes and
// goes.
func TestConcurrent(t *testing.T) {
	w := newWorld(t)
	w.Repeated = nil
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			own := ""
			for n := range 20 {
				w.mu.Lock()
				w.code = []int{http.StatusCreated, http.StatusServiceUnavailable, http.StatusForbidden}[(n+i)%7%3]
				w.mu.Unlock()
				out := httptest.NewRecorder()
				w.ServeHTTP(out, kubelet(packed, func(a *asking) { a.caller.User.Username = fmt.Sprint("user-", i) }))
				if out.Code != http.StatusCreated {
					continue
				}
				token := decode(packed, out.Body.Bytes()).Status.Token
				if out.Header().Get("Warning") != "" && token != own {
					t.Errorf("caller %d got the token of another", i)
				}
				own = token
			}
		})
	}
	wg.Wait()
}
