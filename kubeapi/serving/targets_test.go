package serving

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// targets are targets of requests with the code of their answer, and the path that the handler gets.
var targets = []struct {
	method, target string
	code           int
	path           string
}{
	{"GET", "/api/v1/pods", 200, "/api/v1/pods"},
	{"GET", "//api/v1/pods", 200, "//api/v1/pods"},
	{"GET", "/%2fapi%2Fv1/pods", 200, "//api/v1/pods"},
	{"GET", "https://kubernetes/api/v1/pods", 200, "/api/v1/pods"}, // as HTTP demands
	{"GET", "http:///api/v1/pods", 200, "/api/v1/pods"},
	{"GET", "x:/api/v1/pods", 200, "/api/v1/pods"},
	{"GET", "/x:https://kubernetes/api/v1/pods", 200, "/x:https://kubernetes/api/v1/pods"},
	{"GET", "x:https://kubernetes/api/v1/pods", 400, ""},
	{"GET", "x:https://kubernetes/api/v1/pods?watch=1", 400, ""},
	{"GET", "https:api/v1/pods", 400, ""},
	{"GET", "https:%2fapi/v1/pods", 400, ""},
	{"GET", "https://kubernetes", 400, ""},
	{"GET", "https://kubernetes?watch=1", 400, ""},
	{"GET", "api/v1/pods", 400, ""},
	{"GET", "%2fapi/v1/pods", 400, ""},
	{"GET", "?watch=1", 400, ""},
	{"GET", "*", 400, ""},
	{"OPTIONS", "*", 400, ""},
	{"GET", "kubernetes:443", 400, ""},
	{"GET", "mailto:a@b", 400, ""},
}

// TestTargets: only a request for a path gets past the server, over both versions of HTTP.
func TestTargets(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.URL.Path)
	})
	inBubble(t, h, func(t *testing.T, p pipes) {
		check := func(proto string, i, code int, path string) {
			x := targets[i]
			require.Equal(t, x.code, code, "%s: %s %s", proto, x.method, x.target)
			require.Equal(t, x.path, path, "%s: %s %s", proto, x.method, x.target)
		}
		for i, x := range targets {
			c := secure(t, p.dial(), "http/1.1")
			go func() { _, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: kubernetes\r\n\r\n", x.method, x.target) }()
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			check("HTTP/1.1", i, answer.StatusCode, answer.Header.Get("X-Path"))
			_ = c.Close() // the server may have cut it

			code, path := overHTTP2(t, p, x.method, x.target)
			check("HTTP/2", i, code, path)
		}
		c := secure(t, p.dial(), "http/1.1")
		go func() { _, _ = io.WriteString(c, "CONNECT kubernetes:443 HTTP/1.1\r\nHost: kubernetes:443\r\n\r\n") }()
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		_ = c.Close() // the server may have cut it
	})
}

// overHTTP2 sends a request with any :path, and returns the code of its answer, 400 for a stream that the
// server resets, and the path that its handler got.
func overHTTP2(t *testing.T, p pipes, method, target string) (code int, path string) {
	t.Helper()
	c := newH2(t, p)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	type result struct {
		code int
		path string
	}
	got := make(chan result, 1)
	go func() {
		defer close(got)
		for {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.RSTStreamFrame:
				got <- result{http.StatusBadRequest, ""}
				return
			case *http2.MetaHeadersFrame:
				code, _ := strconv.Atoi(f.PseudoValue("status"))
				r := result{code: code}
				for _, x := range f.RegularFields() {
					if x.Name == "x-path" {
						r.path = x.Value
					}
				}
				got <- r
				return
			}
		}
	}()
	c.header.Reset()
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "localhost"}, {":path", target}} {
		_ = c.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to a buffer
	}
	require.NoError(t, c.WriteSettings())
	require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: bytes.Clone(c.header.Bytes()), EndHeaders: true, EndStream: true}))
	r := <-got
	_ = c.conn.Close() // the server may have cut it
	return r.code, r.path
}
