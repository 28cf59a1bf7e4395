package upstream

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestIdentity(t *testing.T) {
	for _, tc := range []struct {
		name string
		code int
		body string
		want string // a prefix; empty for an error
		kind ErrorClass
	}{
		{"uid", 200, `{"kind":"PartialObjectMetadata","metadata":{"name":"kube-system","uid":"0b1c-2d"}}`, "uid:0b1c-2d", ""},
		{"forbidden", 403, statusBody(403, "Forbidden", "no", ""), "ca:", ""},
		{"not found", 404, statusBody(404, "NotFound", "no", `{"name":"kube-system","kind":"namespaces"}`), "ca:", ""},
		{"no namespaces", 404, statusBody(404, "NotFound", "the server could not find the requested resource", ""), "", Gone},
		{"401", 401, statusBody(401, "Unauthorized", "Unauthorized", ""), "", Unauthorized},
		{"500", 500, statusBody(500, "InternalError", "etcd", ""), "", Server},
		{"no uid", 200, `{"metadata":{}}`, "", Other},
		{"HTML", 200, `<html>`, "", Other},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				require.Equal(t, "/api/v1/namespaces/kube-system", r.URL.Path)
				require.Contains(t, r.Header.Get("Accept"), "as=PartialObjectMetadata;")
				reply(w, tc.code, tc.body)
			})
			id, err := c.Identity(context.Background())
			if tc.want == "" {
				require.Error(t, err)
				require.Equal(t, tc.kind, Classify(err), "%v", err)
				require.Empty(t, id)
				return
			}
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(id, tc.want), id)
			again, err := c.Identity(context.Background())
			require.NoError(t, err)
			require.Equal(t, id, again)
		})
	}
}

// The digest covers the CA, from memory or from a file, and the server's host and port.
func TestIdentityDigest(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 403, statusBody(403, "Forbidden", "no", ""))
	}))
	defer srv.Close()
	ca := certPEM(srv.Certificate())
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, ca, 0o600))

	identity := func(cfg *rest.Config) string {
		c, err := New(cfg)
		require.NoError(t, err)
		defer c.Close()
		id, err := c.Identity(context.Background())
		require.NoError(t, err)
		require.Regexp(t, "^ca:[0-9a-f]{64}$", id)
		return id
	}
	inline := identity(&rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	require.Equal(t, inline, identity(&rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: file}}))
	require.NotEqual(t, inline, identity(&rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{CAData: append([]byte("\n"), ca...)}}))
	other := strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)
	require.NotEqual(t, inline, identity(&rest.Config{Host: other, TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: "example.com"}}))
}
