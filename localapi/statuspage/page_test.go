package statuspage

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/localapi"
)

// statusSource is a Source that has only a status.
type statusSource struct {
	localapi.Source
	status func() (*localapi.Status, error)
}

func (s statusSource) Status(context.Context) (*localapi.Status, error) { return s.status() }

func withStatus(s *localapi.Status) statusSource {
	return statusSource{status: func() (*localapi.Status, error) { return s, nil }}
}

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// get requests the page at a fixed time.
func get(t *testing.T, opts Options) (*httptest.ResponseRecorder, string) {
	t.Helper()
	opts.Clock = testingclock.NewFakeClock(now)
	w := httptest.NewRecorder()
	Handler(opts).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w, w.Body.String()
}

// everything returns a status in which every string contains the name of its field.
func everything() *localapi.Status {
	s := &localapi.Status{Agent: &localapi.AgentStatus{}, Snapshots: &localapi.SnapshotStatus{}, Collections: []localapi.Collection{{
		Verification: &localapi.Verification{}, Purged: &localapi.Purge{}, Synced: true, Indexes: []string{""}, Building: []string{""},
	}}}
	fill(reflect.ValueOf(s).Elem(), "field")
	s.Collections[0].Relists = map[string]int64{"field.Relists": 2}
	s.Collections[0].EventsByMinute = []int64{0, 3}
	return s
}

func fill(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Pointer:
		fill(v.Elem(), name)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(now.Add(-2 * time.Hour)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), name+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), name)
		}
	case reflect.String:
		v.SetString(name)
	case reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(7)
	}
}

// The public page contains no string that the metrics don't have, for any field of the status.
func TestBarePage(t *testing.T) {
	strs := regexp.MustCompile(`field\.[A-Za-z.]+`)
	found := func(bare bool) map[string]bool {
		_, body := get(t, Options{Source: withStatus(everything()), Bare: bare})
		all := map[string]bool{}
		for _, s := range strs.FindAllString(body, -1) {
			all[s] = true
		}
		return all
	}
	require.Equal(t, map[string]bool{
		"field.Agent.Version":                  true,
		"field.Store.EncryptionKey":            true,
		"field.Store.Quarantined":              true,
		"field.Collections.ID":                 true,
		"field.Collections.Phase":              true,
		"field.Collections.Updates.Untrusted":  true,
		"field.Collections.Updates.ListReason": true,
		"field.Collections.ProblemKind":        true,
		"field.Relists":                        true,
	}, found(true))
	whole := found(false)
	for _, s := range []string{
		"field.Agent.Server", "field.Store.Path", "field.Store.Problem", "field.Store.ReadProblem", "field.Store.Verdict", "field.Snapshots.Dir",
		"field.Snapshots.Problem", "field.Collections.Problem", "field.Collections.Scope.LabelSelector", "field.Collections.Scope.FieldSelector",
		"field.Collections.Verification.Problem", "field.Collections.Checkpoint.ResourceVersion",
	} {
		require.Contains(t, whole, s, "on the socket")
	}
}

// The page shows the status in words.
func TestPage(t *testing.T) {
	_, body := get(t, Options{Node: "edge-7", Source: withStatus(&localapi.Status{
		Agent:     &localapi.AgentStatus{Version: "v1.2.3", Started: now.Add(-26 * time.Hour), Server: "https://10.0.0.1:6443", Connected: true},
		Store:     localapi.StoreStatus{Type: "bolt", FileBytes: 48 << 20, Path: "/var/lib/snapcache/cache.db"},
		Snapshots: &localapi.SnapshotStatus{Newest: now.Add(-3 * time.Hour), Bytes: 24 << 20, Made: 2, Failed: 1},
		Collections: []localapi.Collection{
			{
				ID: "pods", Synced: true, CaughtUp: true, Phase: "watching", Objects: 20100, Bytes: 211 << 20,
				Updates: localapi.Updates{
					Lists: 3, Relists: map[string]int64{"initial": 1, "expired": 2}, ListReason: "expired", LastList: now.Add(-5 * time.Minute),
					Events: 4321, Resumes: 3, EventsByMinute: []int64{0, 10, 0, 5},
				},
				Verification: &localapi.Verification{Time: now.Add(-49 * time.Hour)},
			},
			{ID: "nodes", Synced: true, Phase: "waiting", Objects: 3, AgeSeconds: 7200, Problem: "can't reach the server", ProblemKind: "unreachable"},
			{ID: "secrets", Phase: "listing", Updates: localapi.Updates{ListRead: 1500, ListRemaining: 500}},
		},
	})})
	for _, want := range []string{
		"edge-7", "<h1>data is 2h0m old</h1>", "20,103 objects in 2 collections, 1 of 3 caught up, 1 never synced, 211 MiB",
		"<b>nodes</b> data is 2h0m old<span>can&#39;t reach the server</span>",
		">caught up<", "stale, waiting", "never synced, listing", "1,500 read, 500 to go", "no complete list yet",
		"<b>20,100</b> objects", "4,321", "3 times", "1 initial, 2 expired", "5m ago, expired", "2d1h ago: same",
		`aria-label="15 events in the last hour, most in a minute: 10"`, `<path d="M4 40v-40h3v40zM12 40v-20h3v20z"/>`,
		"48 MiB at /var/lib/snapcache/cache.db", "newest 3h0m ago, 24 MiB; 2 made, 1 failed since the start",
		"v1.2.3", `<time datetime="2026-03-03T10:00:00Z" title="2026-03-03T10:00:00Z">1d2h ago</time>`, "https://10.0.0.1:6443",
	} {
		require.Contains(t, body, want)
	}
	require.NotContains(t, body, "No alarms")
	_, body = get(t, Options{Source: withStatus(&localapi.Status{Collections: []localapi.Collection{{ID: "pods", Synced: true, CaughtUp: true}}})})
	require.Contains(t, body, "<h1>caught up</h1>")
	require.Contains(t, body, "No alarms")
}

// Text from the server or the disk is escaped, and the policy matches the page's style and script.
func TestEscaped(t *testing.T) {
	s := everything()
	const evil = `"><script>alert(1)</script><b onclick='x'>`
	s.Store.Problem, s.Collections[0].Problem, s.Collections[0].ID, s.Collections[0].FieldSelector = evil, evil, evil, evil
	w, body := get(t, Options{Source: withStatus(s), Node: evil})
	require.NotContains(t, body, "<script>alert")
	require.NotContains(t, body, "<b onclick")
	require.Contains(t, body, "&lt;script&gt;alert")

	security := w.Header().Get("Content-Security-Policy")
	require.Contains(t, security, "default-src 'none'")
	require.NotContains(t, security, "unsafe")
	for _, tag := range []string{"style", "script"} {
		all := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(body, -1)
		require.Len(t, all, 1)
		require.Contains(t, security, tag+"-src '"+hash(all[0][1])+"'")
	}
	requireLocal(t, body)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
}

// requireLocal checks that a page loads nothing, and has links to pages of the agent alone.
func requireLocal(t *testing.T, body string) {
	t.Helper()
	own := strings.NewReplacer("onclick=", "", `href="data:,"`, "", `href="/"`, "", `href="/browse/`, "", `href="/v1alpha1/`, "")
	require.NotRegexp(t, `\s(style|src|href|action|on\w+)=`, own.Replace(body))
}

// If the database can't be read, the page shows an error, without the cause if it is public.
func TestUnreadable(t *testing.T) {
	broken := statusSource{status: func() (*localapi.Status, error) { return nil, errors.New("/secret/path: no") }}
	w, body := get(t, Options{Source: broken})
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, body, "/secret/path: no")
	w, body = get(t, Options{Source: broken, Bare: true})
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.NotContains(t, body, "/secret")
}

// A request with the name of another site is refused.
func TestLocalHost(t *testing.T) {
	for _, tc := range []struct {
		host string
		want int
	}{
		{"localhost", 200}, {"localhost:9743", 200}, {"127.0.0.1:9743", 200}, {"127.8.9.1", 200}, {"[::1]:9743", 200}, {"[::1]", 200}, {"snapcache", 200}, {"", 200},
		{"evil.example", 403}, {"evil.example:9743", 403}, {"10.0.0.1:9743", 403}, {"127.0.0.1.evil.example", 403}, {"[2001:db8::1]:1", 403},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = tc.host
		w := httptest.NewRecorder()
		LocalHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		require.Equal(t, tc.want, w.Code, tc.host)
	}
}

// TestKnownHost: what programs read may be asked for by every address, and by the node's name.
func TestKnownHost(t *testing.T) {
	for _, tc := range []struct {
		host string
		want int
	}{
		{"localhost:9743", 200}, {"127.0.0.1:9743", 200}, {"10.0.0.1:9743", 200}, {"[2001:db8::1]:1", 200}, {"edge-7", 200}, {"", 200},
		{"edge-7.shops.example:9743", 200}, {"EDGE-7.shops.example", 200},
		{"evil.example", 403}, {"evil.example:9743", 403}, {"127.0.0.1.evil.example", 403}, {"edge-7.shops.example.evil.example", 403},
		{"localhost.evil.example", 403}, {"10.0.0.1.", 403},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = tc.host
		w := httptest.NewRecorder()
		KnownHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "edge-7.shops.example", "").ServeHTTP(w, r)
		require.Equal(t, tc.want, w.Code, tc.host)
	}
}
