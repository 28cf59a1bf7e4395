package clustercheck

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a server of configmaps, as odd as its fields. The zero value is a server without faults, except that it has
// no bookmarks. A real server can't be made to give most of its answers.
type script struct {
	ahead       time.Duration                                     // of its clock
	plain       bool                                              // lists are not compressed
	bookmark    bool                                              // watches begin with one
	expired     int                                               // watches from up to here get 410
	expiredCode bool                                              // as the code of the answer, not as an event
	moves       bool                                              // the newest resourceVersion grows with each question
	answer      func(w http.ResponseWriter, r *http.Request) bool // reports whether it has answered; nil for none

	lists atomic.Int64
}

// objects of the script's only list. Their resourceVersions are 101 to 1100.
const objects = 1000

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", time.Now().Add(s.ahead).UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case r.Method != http.MethodGet:
		panic(r.Method + " of a check that only reads")
	case s.answer != nil && s.answer(w, r):
	case r.URL.Path == "/version":
		fmt.Fprint(w, `{"gitVersion":"v1.2.3"}`)
	case r.URL.Path == "/api/v1":
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[
			{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["get","list","watch"]}]}`)
	case strings.Replace(r.URL.Path, "/namespaces/a/", "/", 1) != "/api/v1/configmaps":
		w.WriteHeader(http.StatusNotFound)
	case query.Get("watch") == "true":
		s.watch(w, r)
	default:
		s.list(w, r)
	}
}

func (s *script) watch(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	timeout, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	const expired = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`
	switch {
	case query.Has("sendInitialEvents"):
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	case from <= s.expired && s.expiredCode:
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, expired)
		return
	case from <= s.expired:
		fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", expired)
		return
	case s.bookmark:
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`+"\n", from+1)
	}
	_ = http.NewResponseController(w).Flush()
	select {
	case <-r.Context().Done():
	case <-time.After(min(time.Duration(timeout)*time.Second, 10*time.Millisecond+time.Duration(timeout-1)*time.Second)):
	}
}

func (s *script) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	rv := int64(1200)
	if n := s.lists.Add(1); s.moves {
		rv += n
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	to, next := objects, ""
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && from+limit < to {
		to = from + limit
		next = strconv.Itoa(to)
	}
	if name, ok := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=c-"); ok {
		from, _ = strconv.Atoi(name)
		to, next = from+1, ""
	}
	kind := "ConfigMapList"
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		kind = "PartialObjectMetadataList"
	}
	var out io.Writer = w
	if !s.plain && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		defer packed.Close()
		out = packed
	}
	fmt.Fprintf(out, `{"kind":%q,"apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q},"items":[`, kind, rv, next)
	for i := from; i < to; i++ {
		if i > from {
			fmt.Fprint(out, ",")
		}
		fmt.Fprintf(out, `{"metadata":{"name":"c-%04d","namespace":"a","resourceVersion":"%d","creationTimestamp":"2026-01-02T03:04:05Z",`+
			`"managedFields":[{"time":"2026-01-02T04:%02d:00Z"}]},"data":{"x":%q}}`, i, 101+i, i%60, strings.Repeat("abcdefgh", 50))
	}
	fmt.Fprint(out, "]}")
}

func check(t *testing.T, s *script, scopes ...Scope) *Report {
	t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	if scopes == nil {
		scopes = []Scope{{ID: "configmaps", Resource: "configmaps", Version: "v1"}}
	}
	report, err := Run(t.Context(), &rest.Config{Host: server.URL}, Options{Scopes: scopes, BookmarkWait: 300 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, server.URL, report.Server)
	require.Equal(t, "v1.2.3", report.Version)
	require.Equal(t, 10, report.Latency.Requests)
	return report
}

func TestRun(t *testing.T) {
	t.Parallel()
	report := check(t, &script{bookmark: true, expired: 400})
	require.Empty(t, report.Notes)
	require.Equal(t, Features{WatchList: No, AggregatedDiscovery: Unknown, ConsistentReads: Unknown}, report.Features)
	require.InDelta(t, 0, report.Clock.AheadSeconds, report.Clock.ErrorSeconds)
	require.Less(t, report.Clock.ErrorSeconds, 0.5)
	c := report.Collections[0]
	require.Empty(t, c.Problem)
	require.EqualValues(t, objects, c.Objects)
	require.EqualValues(t, 2, c.List.Requests)
	require.Less(t, c.List.Bytes*5, c.List.UnpackedBytes)
	require.EqualValues(t, 5, c.Resume.Requests, "the probe, three objects and the watch")
	require.Equal(t, "401", c.Window.ResumesFrom)
	require.Equal(t, "400", c.Window.Expired)
	require.Equal(t, time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC), *c.Window.Changed)
	require.True(t, c.Bookmark.Arrived)
	require.Equal(t, c.List, report.List)
	require.Equal(t, c.Resume, report.Resume)
}

// TestWindow: a 410 may be an event or the answer, and all objects or none may be in the window.
func TestWindow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		*script
		want Window
	}{
		{&script{expired: 400, expiredCode: true}, Window{Known: true, ResumesFrom: "401", Expired: "400"}},
		{&script{}, Window{Known: true, ResumesFrom: "101"}},
		{&script{expired: 1100}, Window{Known: true, Expired: "1100"}},
	} {
		got := check(t, tc.script).Collections[0].Window
		got.Changed = nil
		require.Equal(t, tc.want, got)
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		*script
		want string
	}{
		{"clock behind", &script{bookmark: true, ahead: -time.Hour}, "differ by 1h0m0s"},
		{"clock ahead", &script{bookmark: true, ahead: time.Minute}, "differ by 1m0s"},
		{"not compressed", &script{bookmark: true, plain: true}, "lists of configmaps are not compressed"},
		{"no bookmark", &script{moves: true}, "no bookmark for configmaps"},
	} {
		report := check(t, tc.script)
		require.Len(t, report.Notes, 1, tc.name)
		require.Contains(t, report.Notes[0], tc.want, tc.name)
		require.Empty(t, report.Unmeasured(), tc.name)
	}
	quiet := check(t, &script{})
	require.Empty(t, quiet.Notes, "a server sends no bookmark while nothing changes")
	require.True(t, quiet.Collections[0].Bookmark.NotDue)
}

// TestFailures: what can't be measured is a problem of its collection, and the others are measured.
func TestFailures(t *testing.T) {
	t.Parallel()
	status := func(w http.ResponseWriter, code int, reason string) bool {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"it is so"}`, reason, code)
		return true
	}
	inScope := func(r *http.Request) bool { // not about one object of another collection
		return strings.Contains(r.URL.Path, "/namespaces/a/") && !r.URL.Query().Has("fieldSelector")
	}
	for _, tc := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request) bool
		want   string
	}{
		{"forbidden list", func(w http.ResponseWriter, r *http.Request) bool {
			return inScope(r) && status(w, 403, "Forbidden")
		}, "it is so"},
		{"forbidden watch", func(w http.ResponseWriter, r *http.Request) bool {
			return inScope(r) && r.URL.Query().Has("watch") && status(w, 403, "Forbidden")
		}, "it is so"},
		{"no list", func(w http.ResponseWriter, r *http.Request) bool {
			if inScope(r) {
				fmt.Fprint(w, "<html>please log in</html>")
				return true
			}
			return false
		}, "no proxy or login page"},
	} {
		report := check(t, &script{bookmark: true, answer: tc.answer}, Scope{ID: "configmaps@a", Resource: "configmaps", Namespace: "a"}, Scope{ID: "none", Resource: "none"},
			Scope{ID: "configmaps", Resource: "configmaps"})
		require.Equal(t, []string{"configmaps@a", "none"}, report.Unmeasured(), tc.name)
		require.Contains(t, report.Collections[0].Problem, tc.want, tc.name)
		require.Contains(t, report.Collections[1].Problem, "no resource", tc.name)
		require.True(t, report.Collections[2].Bookmark.Arrived, tc.name)
	}
}

// TestHangs: a server that answers nothing any more ends no later than the caller does, and one that can't be asked at
// all is an error.
func TestHangs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := &script{answer: func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("continue") {
			cancel()
			<-r.Context().Done()
			return true
		}
		return false
	}}
	server := httptest.NewServer(s)
	_, err := Run(ctx, &rest.Config{Host: server.URL}, Options{Scopes: []Scope{{ID: "configmaps", Resource: "configmaps"}}})
	require.ErrorIs(t, err, context.Canceled)
	server.Close()
	_, err = Run(t.Context(), &rest.Config{Host: server.URL}, Options{})
	require.ErrorContains(t, err, server.URL+" could not be asked: can't reach the server")
}
