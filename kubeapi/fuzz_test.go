package kubeapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/store/memory"
)

// hasty is a clock whose timers end at once, so that every request does.
type hasty struct{ clock.RealClock }

func (h hasty) NewTimer(d time.Duration) clock.Timer {
	return h.RealClock.NewTimer(min(d, time.Millisecond))
}

func hastyServer(t testing.TB, objects int) *Server {
	c := newCached(t, memory.New(), objects, 10)
	return New(Options{Collections: func() []*Collection { return []*Collection{c.Collection} }, Clock: hasty{}, SpoolDir: t.TempDir()})
}

// FuzzRequest asks for anything: never with a panic, and the answer is a list, a watch, an object or a
// document, or a valid Status with the code of the answer.
func FuzzRequest(f *testing.F) {
	const path = "/api/v1/configmaps"
	for _, target := range []string{
		path, path + "?limit=1", path + "?limit=9223372036854775807", path + "?limit=-9223372036854775808", path + "?limit=99999999999999999999",
		path + "?watch=1", path + "?watch=1&allowWatchBookmarks=1&resourceVersion=2", path + "?watch=1&timeoutSeconds=9223372036854775807",
		path + "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
		path + "?resourceVersion=-1", path + "?resourceVersion=18446744073709551616", path + "?resourceVersion=1e3", path + "?resourceVersion=%00",
		path + "?resourceVersion=18446744073709551615", path + "?resourceVersion=1&resourceVersionMatch=Exact", path + "?resourceVersion=3&resourceVersion=x",
		path + "?limit=1&limit=x", path + "?labelSelector=a%3Db&labelSelector=,,", path + "?labelSelector=a+in+(b,", path + "?labelSelector=%ff%00",
		path + "?fieldSelector=metadata.name%3Do000001", path + "?fieldSelector=spec.x%3D1", path + "?fieldSelector=%5C%5C%3D", path + "?watch=1&watch=0",
		path + "?continue=%00", path + "?continue=" + newToken("3", "ns/o000001").String(), path + "?continue=" + newToken("1", "\x00/..").String() + "&limit=1",
		path + "?;a=b", path + "?%zz", path + "?pretty=1", "/api/v1/namespaces/ns/configmaps/o000001", "/api/v1/namespaces/n%2Fs/configmaps/o000001",
		"/api/v1/namespaces/ns/configmaps/..", "/api/v1/namespaces/ns/configmaps/%2e%2e", "//api//v1//configmaps", "/api/v1/namespaces/%00/configmaps",
		"/api/v1/namespaces/ns/configmaps/%ff%fe", "/api/v1/watch/configmaps", "/api/v1/watch/namespaces/ns/configmaps/o000001", "/api/../api/v1/configmaps",
		"/api/v1/namespaces/ns/configmaps/o000001/status/a/b", "/api", "/apis", "/api/v1", "/apis//", "/version", "*", "/healthz", "/openapi/v3", "http://other/api/v1/configmaps",
	} {
		f.Add("GET", target, "application/json")
	}
	for _, accept := range []string{
		"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf",
		"*/*;q=\x00", ";;;,,", "application/yaml", strings.Repeat("application/json,", 500),
	} {
		f.Add("GET", path, accept)
		f.Add("GET", path+"?watch=true", accept)
	}
	f.Add("POST", path, "")
	f.Add("DELETE", path+"/o000001", "")
	f.Add("HEAD", path, "")
	s := hastyServer(f, 3)
	f.Fuzz(func(t *testing.T, method, target, accept string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: localhost\r\nAccept: " + accept + "\r\n\r\n")))
		if err != nil {
			t.Skip("net/http refuses it")
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r.WithContext(t.Context()))
		checkAnswer(t, w, 3)
		require.Zero(t, held(s.requests, maxRequests))
		require.Zero(t, held(s.watches, maxWatches))
		require.Zero(t, taken(s.lists))
	})
}

// checkAnswer checks an answer from a collection with a number of objects.
func checkAnswer(t *testing.T, w *httptest.ResponseRecorder, objects int) {
	t.Helper()
	body := w.Body.Bytes()
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		require.Contains(t, []int{http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed}, w.Code)
		return
	}
	if w.Code != http.StatusOK {
		var status metav1.Status
		require.NoError(t, json.Unmarshal(body, &status), "%q", body)
		require.Equal(t, "Status", status.Kind)
		require.Equal(t, metav1.StatusFailure, status.Status)
		require.EqualValues(t, w.Code, status.Code)
		require.NotEmpty(t, status.Message)
		codes := []int{400, 403, 404, 405, 406, 410, 422, 429, 504}
		if strings.Contains(status.Message, "resourceVersion: Invalid value") {
			codes = append(codes, http.StatusInternalServerError) // as a kube-apiserver
		}
		require.Contains(t, codes, w.Code, "%s", body)
		return
	}
	documents := json.NewDecoder(bytes.NewReader(body))
	for documents.More() {
		var x struct {
			Kind, Type  string
			Object      json.RawMessage
			Items, Rows []json.RawMessage
		}
		require.NoError(t, documents.Decode(&x), "%q", body)
		require.LessOrEqual(t, len(x.Items)+len(x.Rows), objects)
		if x.Kind == "" && x.Type != "" {
			require.NotEmpty(t, x.Object, "a frame")
		}
	}
}

// FuzzToken continues a list with anything: with the rest after a key in order, or an error.
func FuzzToken(f *testing.F) {
	for _, x := range []token{
		newToken("3", "ns/o000001"), newToken("9223372036854775807", "a"), newToken("0", ""), newToken("-5", "ns/"), newToken("3", "\xff"), newToken("x", "//"),
		{Version: tokenVersion, RV: 1, Start: "../.."}, {Version: tokenVersion, RV: 1, Start: "\x00"}, {Version: "v2", RV: 1, Start: "a"}, {Version: tokenVersion},
	} {
		f.Add(x.String())
	}
	f.Add("")
	f.Add("e30")
	f.Add("bnVsbA")
	f.Add("\x00\xff=")
	s := hastyServer(f, 5)
	f.Fuzz(func(t *testing.T, raw string) {
		x, err := parseToken(raw)
		if err == nil {
			again, err := parseToken(x.String())
			require.NoError(t, err)
			require.Equal(t, x, again)
		}
		for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces/ns/configmaps"} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+"?limit=2&continue="+url.QueryEscape(raw), nil))
			checkAnswer(t, w, 2)
			if raw == "" {
				continue
			}
			require.Equal(t, err != nil, w.Code == http.StatusBadRequest, "%v: %s", err, w.Body)
			if w.Code != http.StatusOK {
				continue
			}
			var list struct {
				Items []struct {
					Metadata struct{ Name string } `json:"metadata"`
				} `json:"items"`
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
			after := strings.TrimPrefix(x.after(), "ns/")
			if path == "/api/v1/namespaces/ns/configmaps" {
				after = x.after()
			}
			var names []string
			for _, item := range list.Items {
				names = append(names, item.Metadata.Name)
				if path != "/api/v1/configmaps" || strings.HasPrefix(x.after(), "ns/") {
					require.Greater(t, item.Metadata.Name, after)
				}
			}
			require.True(t, slices.IsSorted(names))
		}
	})
}
