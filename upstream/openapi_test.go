package upstream

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestOpenAPI(t *testing.T) {
	const document = `{"openapi":"3.0.0"}`
	for _, tc := range []struct {
		name, base, asked, want string
	}{
		{"index", "", "/openapi/v3", "/openapi/v3"},
		{"document", "", "/openapi/v3/apis/apps/v1?hash=AB%2B", "/openapi/v3/apis/apps/v1?hash=AB%2B"},
		{"behind a path", "/k8s/c-1", "/openapi/v3/api/v1?hash=A", "/k8s/c-1/openapi/v3/api/v1?hash=A"},
		{"behind a path that the index has", "/k8s/c-1/", "/k8s/c-1/openapi/v3/api/v1?hash=A", "/k8s/c-1/openapi/v3/api/v1?hash=A"},
		{"another host is never asked", "", "https://192.0.2.1/openapi/v3", "/openapi/v3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				require.Equal(t, tc.want, r.URL.String())
				require.Equal(t, "application/json", r.Header.Get("Accept"))
				require.Contains(t, r.Header.Get("Accept-Encoding"), "gzip")
				w.Header().Set("Content-Encoding", "gzip")
				zw := gzip.NewWriter(w)
				_, _ = zw.Write([]byte(document))
				_ = zw.Close()
			}))
			defer srv.Close()
			c, err := New(&rest.Config{Host: srv.URL + tc.base})
			require.NoError(t, err)
			defer c.Close()
			body, err := c.OpenAPI(t.Context(), tc.asked)
			require.NoError(t, err)
			raw, err := io.ReadAll(body)
			require.NoError(t, err)
			require.NoError(t, body.Close())
			require.Equal(t, document, string(raw))
		})
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { reply(w, 403, statusBody(403, "Forbidden", "no", "")) })
	_, err := c.OpenAPI(t.Context(), "/openapi/v3")
	require.Equal(t, Forbidden, Classify(err), "%v", err)
	_, err = c.OpenAPI(t.Context(), ":")
	require.Error(t, err)
}
