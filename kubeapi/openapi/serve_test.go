package openapi

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestServe(t *testing.T) {
	m, s := openMirror(t, t.TempDir()), newServer()
	require.NoError(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{core, apps}))
	const (
		plain    = root + "/apis/apps/v1"
		hashed   = plain + "?hash=A1"
		protobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	)
	for _, tc := range []struct {
		name, url string
		headers   []string
		code      int
		cache     string
		gzip      bool
	}{
		{"plain", plain, nil, 200, "no-cache, private", false},
		{"with hash", hashed, nil, 200, "public, immutable", false},
		{"gzip", hashed, []string{"Accept-Encoding", "br, gzip"}, 200, "public, immutable", true},
		{"gzip with a weight", hashed, []string{"Accept-Encoding", "gzip;q=0"}, 200, "public, immutable", false},
		{"protobuf or JSON", plain, []string{"Accept", protobuf + ", application/json;q=0.5"}, 200, "no-cache, private", false},
		{"anything", plain, []string{"Accept", "*/*"}, 200, "no-cache, private", false},
		{"protobuf", plain, []string{"Accept", protobuf}, 406, "no-cache, private", false},
		{"known", hashed, []string{"If-None-Match", `"A1"`}, 304, "public, immutable", false},
		{"known without hash", plain, []string{"If-None-Match", `"A1"`}, 304, "no-cache, private", false},
		{"another one is known", hashed, []string{"If-None-Match", `"B2"`}, 200, "public, immutable", false},
		{"other hash", plain + "?hash=B2", nil, 301, "no-cache, private", false},
		{"not there", root + "/apis/batch/v1", nil, 404, "no-cache, private", false},
		{"no document", root + "/", nil, 404, "no-cache, private", false},
		{"no path", root + "x", nil, 404, "no-cache, private", false},
		{"a path of the file system", root + "/../mirror_test.go", nil, 404, "no-cache, private", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ask(m, tc.url, tc.headers...)
			require.Equal(t, tc.code, w.Code)
			h := w.Header()
			require.Equal(t, tc.cache, h.Get("Cache-Control"))
			switch tc.code {
			case 200:
				require.Equal(t, "application/json", h.Get("Content-Type"))
				require.Equal(t, `"A1"`, h.Get("ETag"))
				require.Equal(t, "Accept, Accept-Encoding", h.Get("Vary"))
				require.Equal(t, strconv.Itoa(w.Body.Len()), h.Get("Content-Length"))
				require.Equal(t, tc.cache == "public, immutable", h.Get("Expires") != "")
				var body io.Reader = w.Body
				if tc.gzip {
					require.Equal(t, "gzip", h.Get("Content-Encoding"))
					var err error
					body, err = gzip.NewReader(body)
					require.NoError(t, err)
				} else {
					require.Empty(t, h.Get("Content-Encoding"))
				}
				raw, err := io.ReadAll(body)
				require.NoError(t, err)
				require.Equal(t, document1("apis/apps/v1"), string(raw))
			case 301:
				require.Equal(t, hashed, h.Get("Location"))
				fallthrough
			default:
				require.Zero(t, w.Body.Len())
			}
		})
	}
	w := ask(m, root)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.JSONEq(t, `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=A1"},`+
		`"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=A1"}}}`, w.Body.String())
}

// Documents are served while they are replaced, and each is the one of its hash.
func TestServe_WhileRefreshing(t *testing.T) {
	m, s := openMirror(t, t.TempDir()), newServer()
	body := func(hash string) string { return `{"hash":"` + hash + `"}` }
	s.set("apis/apps/v1", "A0", body("A0"))
	require.NoError(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{apps}))
	srv := httptest.NewServer(m)
	defer srv.Close()

	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				resp, err := srv.Client().Get(srv.URL + root + "/apis/apps/v1")
				if err != nil {
					t.Error(err)
					return
				}
				raw, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				hash, _ := strconv.Unquote(resp.Header.Get("ETag"))
				if err != nil || resp.StatusCode != http.StatusOK || string(raw) != body(hash) {
					t.Errorf("%d %q for hash %s: %v", resp.StatusCode, raw, hash, err)
					return
				}
			}
		})
	}
	for i := range 30 {
		hash := "A" + strconv.Itoa(i+1)
		s.set("apis/apps/v1", hash, body(hash))
		if err := m.Refresh(t.Context(), s.get, []schema.GroupVersion{apps}); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	require.Equal(t, body("A30"), ask(m, root+"/apis/apps/v1?hash=A30").Body.String())
}
