package forward

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForwardIsTransparent: what reaches the server, and what comes back, is as it is without the handler.
func TestForwardIsTransparent(t *testing.T) {
	type seen struct {
		method, uri, body string
		header            http.Header
	}
	var last seen
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header.Clone()
		h.Del("Content-Length")
		last = seen{r.Method, r.RequestURI, string(body), h}
		if r.URL.Query().Has("trailer") {
			w.Header().Set("Trailer", "X-Announced")
		}
		w.Header()["X-Many"] = []string{"a", "b"}
		if r.URL.Query().Get("bare") == "" {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		} else {
			w.Header()["Content-Type"] = nil
		}
		w.Header().Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
		w.Header().Set("Audit-Id", "1")
		w.Header().Set("Warning", `299 - "deprecated"`)
		var code int
		if _, err := fmt.Sscan(r.URL.Query().Get("code"), &code); err != nil {
			code = http.StatusOK
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html>body of "+r.Method)
		if r.URL.Query().Has("trailer") {
			_ = http.NewResponseController(w).Flush()
			w.Header().Set("X-Announced", "after")
			w.Header().Set(http.TrailerPrefix+"X-Late", "later")
		}
	}))
	type answer struct {
		code            int
		body            string
		header, trailer http.Header
	}
	send := func(c *http.Client, base, method, uri, body string) (answer, seen) {
		last = seen{}
		var from io.Reader
		if body != "" {
			from = io.LimitReader(strings.NewReader(body), 1<<20) // of unknown length
		}
		r := request(t, method, base+uri, from)
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
		r.Header.Set("Accept", "application/json;as=Table")
		r.Header.Set("User-Agent", "kubectl/v1")
		got, err := c.Do(r)
		require.NoError(t, err)
		defer got.Body.Close()
		raw, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		return answer{got.StatusCode, string(raw), got.Header, got.Trailer}, last
	}
	for _, protocol := range []string{"h2", "http/1.1"} {
		direct, through := client(t, s.upstream, protocol), client(t, s.proxy, protocol)
		for _, uri := range []string{
			"/", "/api/v1/pods", "/api/v1/namespaces/a/pods/b/log?follow=true&container=c", "/api//v1/./pods", "/api/v1/../../secrets",
			"/api/v1/namespaces/a%2fb/pods", "/api/v1/%6eodes", "/apis/x/a%20b+c", "/api?q=%zz&a;b", "/api?", "/api?bare=1", "/api?trailer", "/api?code=404", "/api?code=409",
			"/api?code=500", "/api?code=302", "/api?code=204", "/api?code=422", "/%e4", "//api/v1/secrets", "/api/v1/pods/",
		} {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "ODD"} {
				body := ""
				if method != "GET" && method != "HEAD" {
					body = strings.Repeat("body\x00", 100)
				}
				want, wantSeen := send(direct, s.upstream.URL, method, uri, body)
				got, gotSeen := send(through, s.proxy.URL, method, uri, body)
				require.Equal(t, wantSeen, gotSeen, "%s %s over %s: at the server", method, uri, protocol)
				require.Equal(t, want, got, "%s %s over %s: at the client", method, uri, protocol)
			}
		}
	}
}
