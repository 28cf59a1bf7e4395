package tokens

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/store/bolt"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

const (
	path   = "/api/v1/namespaces/shop/serviceaccounts/till/token"
	asJSON = runtime.ContentTypeJSON
	packed = runtime.ContentTypeProtobuf
)

// world is a Handler between callers and a server.
type world struct {
	*Handler
	t        *testing.T
	clock    *clocktesting.FakePassiveClock
	db       *bolt.DB
	file     string
	log      bytes.Buffer
	repeated int

	mu      sync.Mutex
	code    int // that the server answers with; 201 for a token
	issued  int
	expires time.Time   // the tokens themselves; unset if the token has no time
	header  http.Header // of the newest request to the server
	body    []byte
	pad     string            // an audience that makes an answer larger
	objects map[string]string // "resource namespace/name" to UID; "-" for one that is missing
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(start), file: filepath.Join(t.TempDir(), "tokens.db"), code: http.StatusCreated,
		objects: map[string]string{"pods shop/till-0": "p1", "serviceaccounts shop/till": "sa1"},
	}
	w.Handler = &Handler{
		Next: http.HandlerFunc(w.serve), Lookup: w.lookup, Clock: w.clock, Repeated: func() { w.repeated++ },
		Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	w.open()
	t.Cleanup(func() {
		require.NoError(t, w.db.Close())
		require.NotContains(t, w.log.String(), "eyJ", "a token is in the log")
	})
	return w
}

var keyText = []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))

func (w *world) open() {
	w.t.Helper()
	key, err := bolt.ParseKey(keyText)
	require.NoError(w.t, err)
	w.db, err = bolt.Open(w.file, bolt.Options{Keys: bolt.Keyring{Primary: key}})
	require.NoError(w.t, err)
	w.Store, err = Open(w.db, w.Log)
	require.NoError(w.t, err)
}

func (w *world) lookup(r schema.GroupResource, namespace, name string) (string, access.Presence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch uid := w.objects[r.Resource+" "+namespace+"/"+name]; uid {
	case "":
		return "", access.Unknown
	case "-":
		return "", access.Missing
	default:
		return uid, access.Present
	}
}

// serve is the server. It issues a new token for each request.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header, w.body = r.Header, body
	if w.code == 0 {
		return
	}
	if w.code != http.StatusCreated {
		rw.Header().Set("X-From", "server")
		rw.WriteHeader(w.code)
		_, _ = io.WriteString(rw, "refused by the server")
		return
	}
	t := decode(r.Header.Get("Content-Type"), body)
	if t == nil {
		http.Error(rw, "not a TokenRequest", http.StatusBadRequest)
		return
	}
	w.issued++
	if w.pad != "" {
		t.Spec.Audiences = append(t.Spec.Audiences, w.pad)
	}
	t.Status.Token = newJWT(fmt.Sprint("token-", w.issued), w.expires)
	t.Status.ExpirationTimestamp = metav1.NewTime(start.Add(time.Hour))
	if s := t.Spec.ExpirationSeconds; s != nil {
		t.Status.ExpirationTimestamp = metav1.NewTime(start.Add(time.Duration(*s) * time.Second))
	}
	contentType, out := encode(r.Header.Get("Accept"), t)
	rw.Header().Set("Content-Type", contentType)
	rw.Header().Set("X-From", "server")
	rw.WriteHeader(http.StatusCreated)
	_, _ = rw.Write(out)
}

// newJWT returns a token for the pod till-0 of the service account till, with a signature that is none.
func newJWT(id string, expires time.Time) string {
	part := func(x any) string {
		raw, err := json.Marshal(x)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	claims := map[string]any{
		"jti": id,
		"kubernetes.io": map[string]any{
			"namespace": "shop", "serviceaccount": map[string]any{"name": "till", "uid": "sa1"}, "pod": map[string]any{"name": "till-0", "uid": "p1"},
		},
	}
	if !expires.IsZero() {
		claims["exp"] = expires.Unix()
	}
	return part(map[string]any{"alg": "RS256"}) + "." + part(claims) + "." + part("signature")
}

// asking is a request of a caller.
type asking struct {
	*http.Request
	caller *access.Caller
	spec   authenticationv1.TokenRequestSpec
}

// kubelet returns the usual request, after changes.
func kubelet(contentType string, change ...func(*asking)) *http.Request {
	a := &asking{
		Request: httptest.NewRequest(http.MethodPost, path, nil),
		caller: &access.Caller{User: authenticationv1.UserInfo{
			Username: "system:node:edge-1", Groups: []string{"system:nodes", "system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"X509SHA256=1"}},
		}},
		spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{"a", "b"}, ExpirationSeconds: new(int64),
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "till-0", UID: "p1"},
		},
	}
	*a.spec.ExpirationSeconds = 3600
	a.Header.Set("Content-Type", contentType)
	a.Header.Set("Accept", contentType+",application/json")
	for _, fn := range change {
		fn(a)
	}
	_, body := encode(contentType, &authenticationv1.TokenRequest{Spec: a.spec})
	a.Body, a.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return a.WithContext(access.WithCaller(a.Context(), a.caller))
}

// send returns the answer to a request, with the token in it; empty for none.
func (w *world) send(r *http.Request) (token string, _ *httptest.ResponseRecorder) {
	w.t.Helper()
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	if out.Code != http.StatusCreated {
		return "", out
	}
	t := decode(out.Header().Get("Content-Type"), out.Body.Bytes())
	require.NotNil(w.t, t, "%q", out.Body.String())
	require.NotEmpty(w.t, t.Status.Token)
	return t.Status.Token, out
}

// stored returns the number of stored tokens.
func (w *world) stored() int64 {
	v, err := w.db.View("tokens")
	require.NoError(w.t, err)
	defer v.Close()
	return v.State().Count
}
