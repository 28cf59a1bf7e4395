package upstream

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

// The requests of a list from a seed.
const (
	askIdentity = "identity"
	askSchema   = "schema"
	askNewest   = "newest"
	askProbe    = "probe"
	askList     = "list"
)

// member is a server with the list of [breaking], or an empty one.
type member struct {
	uid    string // of the cluster; empty for one that is forbidden
	schema string // of tills
	age    string // of its answers, in seconds
	gone   bool
	empty  bool

	retryAfter string // of a 429, in seconds; empty for 3

	mu    sync.Mutex
	fails map[string][]answerOf // the first answers to a request
	list  breaking
	asked []string
	urls  []*url.URL // of lists
}

// answerOf is an answer that is not the usual one.
type answerOf struct {
	code int
	body string
}

// RoundTrip implements [http.RoundTripper].
func (m *member) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what := askList
	switch q := r.URL.Query(); {
	case strings.HasSuffix(r.URL.Path, "/namespaces/kube-system"):
		what = askIdentity
	case strings.Contains(r.URL.Path, "customresourcedefinitions"):
		what = askSchema
	case q.Get("resourceVersion") != "":
		what = askProbe
	case q.Get("limit") == "1":
		what = askNewest
	default:
		m.urls = append(m.urls, r.URL)
	}
	m.asked = append(m.asked, what)
	if m.gone {
		return nil, io.ErrUnexpectedEOF
	}
	if fails := m.fails[what]; len(fails) > 0 {
		m.fails[what] = fails[1:]
		return answered(fails[0].code, fails[0].body, m.age, m.retryAfter), nil
	}
	switch {
	case what == askIdentity && m.uid == "":
		return answered(http.StatusForbidden, statusBody(403, "Forbidden", "no", ""), "", ""), nil
	case what == askIdentity:
		return answered(http.StatusOK, `{"metadata":{"uid":"`+m.uid+`"}}`, m.age, ""), nil
	case what == askSchema:
		return answered(http.StatusOK, `{"metadata":{"uid":"1"},"spec":{"versions":[{"name":"v1","schema":"`+m.schema+`"}]}}`, m.age, ""), nil
	case what == askList && !m.empty:
		return m.list.RoundTrip(r)
	}
	return answered(http.StatusOK, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[]}`, m.age, ""), nil
}

func answered(code int, body, age, retryAfter string) *http.Response {
	header := http.Header{"Content-Type": []string{"application/json"}}
	if age != "" {
		header.Set("Age", age)
	}
	if code == http.StatusTooManyRequests {
		header.Set("Retry-After", cmp.Or(retryAfter, "3"))
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body))}
}

// times returns n times the same answer.
func times(n, code int, body string) (all []answerOf) {
	for range n {
		all = append(all, answerOf{code, body})
	}
	return all
}

// seededSource returns a source of ours with a seed.
func seededSource(t *testing.T, ours, theirs *member, opts SourceOptions) *Source {
	t.Helper()
	c, err := New(&rest.Config{Host: "http://server", Transport: ours})
	require.NoError(t, err)
	require.NoError(t, c.SeedFrom(&rest.Config{Host: "http://hub", Transport: theirs}))
	return c.Source(opts)
}

// listing is the result of a list.
type listing struct {
	rv    string
	keys  []string
	seeds []string // the calls of Seeded
	err   error
}

func (s *Source) listed(ctx context.Context) (l listing) {
	l.rv, l.err = s.List(ctx, ListOptions{PageSize: 10, Seeded: func(server string, err error) {
		l.seeds = append(l.seeds, fmt.Sprintf("%s %s", server, Classify(err)))
	}}, func(o *object.Object) error {
		l.keys = append(l.keys, o.Key())
		return nil
	})
	return l
}

// TestSeed checks which server the first list comes from, and the next one.
func TestSeed(t *testing.T) {
	const (
		fromSeed   = "seed"
		fromServer = "server"
		failed     = "" // the list; the next one comes from the server
	)
	forbidden, missing := statusBody(403, "Forbidden", "no", ""), statusBody(404, "NotFound", "no", "")
	busy, tooOld := statusBody(429, "TooManyRequests", "busy", ""), statusBody(410, "Expired", "old", "")
	tooLarge := statusBody(504, "Timeout", "Too large resource version: 12, current: 5", `{"causes":[{"reason":"ResourceVersionTooLarge"}]}`)
	older := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"8"},"items":[]}`
	for _, tc := range []struct {
		name         string
		ours, theirs func(m *member)
		from         string
		why          ErrorClass
		took         time.Duration
	}{
		{"no failure", nil, nil, fromSeed, "", 0},
		{"an empty collection", nil, func(m *member) { m.empty = true }, fromSeed, "", 0},
		{"a page breaks", nil, func(m *member) { m.list.breaks[1] = []int{4} }, fromSeed, "", time.Second},
		{"busy for a while", nil, func(m *member) {
			m.fails = map[string][]answerOf{askNewest: times(1, 429, busy), askList: times(2, 429, busy)}
		}, fromSeed, "", 9 * time.Second},
		{"the server lags for a while", func(m *member) {
			m.fails = map[string][]answerOf{askProbe: times(2, 504, tooLarge), askNewest: times(2, 200, older)}
		}, nil, fromSeed, "", 3 * time.Second},
		{"the server is busy for a while", func(m *member) { m.fails = map[string][]answerOf{askProbe: times(1, 503, "down")} }, nil, fromSeed, "", time.Second},

		{"gone", nil, func(m *member) { m.gone = true }, fromServer, Unreachable, 0},
		{"gone after the checks", nil, func(m *member) { m.list.breaks[0] = []int{0} }, fromServer, Unreachable, 0},
		{"another cluster", nil, func(m *member) { m.uid = "2" }, fromServer, Other, 0},
		{"an unknown cluster", nil, func(m *member) { m.uid = "" }, fromServer, Other, 0},
		{"unknown clusters", func(m *member) { m.uid = "" }, func(m *member) { m.uid = "" }, fromServer, Other, 0},
		{"no identity", nil, func(m *member) { m.fails = map[string][]answerOf{askIdentity: times(1, 404, missing)} }, fromServer, Gone, 0},
		{"cut off from its server", nil, func(m *member) { m.age = "7" }, fromServer, Unreachable, 0},
		{"forbidden", nil, func(m *member) {
			m.fails = map[string][]answerOf{askNewest: times(9, 403, forbidden), askList: times(9, 403, forbidden)}
		}, fromServer, Forbidden, 0},
		{"a forbidden list", nil, func(m *member) { m.fails = map[string][]answerOf{askList: times(9, 403, forbidden)} }, fromServer, Forbidden, 0},
		{"not cached", nil, func(m *member) { m.fails = map[string][]answerOf{askNewest: times(1, 404, missing)} }, fromServer, Gone, 0},
		{"expired", nil, func(m *member) { m.fails = map[string][]answerOf{askList: times(1, 410, tooOld)} }, fromServer, Expired, 0},
		{"busy", nil, func(m *member) { m.fails = map[string][]answerOf{askNewest: times(9, 429, busy)} }, fromServer, Throttled, pageRetries * 3 * time.Second},
		{"busy, and asks for an hour", nil, func(m *member) {
			m.retryAfter = "3600"
			m.fails = map[string][]answerOf{askNewest: times(9, 429, busy)}
		}, fromServer, Throttled, pageRetries * maxPageDelay},
		{"empty, and ahead of the server", func(m *member) {
			m.fails = map[string][]answerOf{askProbe: times(9, 504, tooLarge), askNewest: times(9, 200, older)}
		}, func(m *member) { m.empty = true }, fromServer, Ahead, 31 * time.Second},

		{"broken in the first page", nil, func(m *member) { m.list.breaks[0] = []int{4} }, failed, Unreachable, 0},
		{"expired after a page", nil, func(m *member) { m.list.breaks[1] = []int{expired} }, failed, Expired, 0},
		{"ahead of the server", func(m *member) {
			m.fails = map[string][]answerOf{askProbe: times(9, 504, tooLarge), askNewest: times(9, 200, older)}
		}, nil, failed, Ahead, 31 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := &member{uid: "1"}, &member{uid: "1"}
				if tc.ours != nil {
					tc.ours(ours)
				}
				if tc.theirs != nil {
					tc.theirs(theirs)
				}
				s := seededSource(t, ours, theirs, SourceOptions{Resource: pods})
				began := time.Now()
				got := s.listed(t.Context())
				require.InDelta(t, tc.took, time.Since(began), float64(time.Second)/10)
				require.Equal(t, []string{fmt.Sprintf("http://hub %s", tc.why)}, got.seeds)
				if tc.from == failed {
					require.Equal(t, tc.why, Classify(got.err), "%v", got.err)
					require.ErrorContains(t, got.err, "seed http://hub: ")
					require.Empty(t, got.rv)
				} else {
					require.NoError(t, got.err)
					require.Equal(t, "12", got.rv)
				}
				if tc.from != fromServer {
					require.NotContains(t, ours.asked, askList)
				}
				if tc.from == fromSeed {
					require.Equal(t, theirs.empty, len(got.keys) == 0)
					require.Positive(t, s.BytesReceived())
					return
				}
				before := len(theirs.asked)
				if tc.from == failed {
					got = s.listed(t.Context())
					require.NoError(t, got.err)
					require.Empty(t, got.seeds)
				}
				require.Contains(t, ours.asked, askList)
				require.Len(t, got.keys, 30)
				s.listed(t.Context())
				require.Len(t, theirs.asked, before, "the seed is not asked again")
			})
		})
	}
}

// TestSeedStopped checks that a list that its caller ends is no failure of the seed.
func TestSeedStopped(t *testing.T) {
	ours, theirs := &member{uid: "1"}, &member{uid: "1"}
	s := seededSource(t, ours, theirs, SourceOptions{Resource: pods})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := s.listed(ctx)
	require.ErrorIs(t, got.err, context.Canceled)
	require.Empty(t, got.seeds)
	require.NotContains(t, ours.asked, askList)
	require.Equal(t, []string{"http://hub "}, s.listed(t.Context()).seeds)
}

// TestSeedScope checks that the seed is asked for the scope of the source, and that lists that are not
// first ones and single objects come from the server.
func TestSeedScope(t *testing.T) {
	ours, theirs := &member{uid: "1"}, &member{uid: "1"}
	s := seededSource(t, ours, theirs, SourceOptions{Resource: pods, Namespace: "shop", LabelSelector: "a=b", FieldSelector: "metadata.name=x"})
	require.NoError(t, s.listed(t.Context()).err)
	require.Equal(t, []string{askIdentity, askNewest, askList, askList, askList}, theirs.asked)
	require.Equal(t, []string{askIdentity, askProbe}, ours.asked)
	for _, u := range theirs.urls {
		require.Equal(t, "http://hub/api/v1/namespaces/shop/pods", u.Scheme+"://"+u.Host+u.Path)
		require.Equal(t, []string{"a=b"}, u.Query()["labelSelector"])
		require.Equal(t, []string{"metadata.name=x"}, u.Query()["fieldSelector"])
	}

	before := len(theirs.asked)
	_, err := s.List(t.Context(), ListOptions{}, func(*object.Object) error { return nil })
	require.NoError(t, err)
	_, _ = s.Get(t.Context(), "shop/x") // whether it has the object does not matter
	require.Len(t, theirs.asked, before)
}

// TestSeedSchema checks that objects of another form are not taken.
func TestSeedSchema(t *testing.T) {
	for _, tc := range []struct {
		name, ours, theirs string
		ok                 bool
	}{
		{"the same", "x", "x", true},
		{"another", "x", "y", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := seededSource(t, &member{uid: "1", schema: tc.ours}, &member{uid: "1", schema: tc.theirs}, SourceOptions{Resource: tills})
			err := s.seed.check(t.Context(), tills)
			require.Equal(t, tc.ok, err == nil, "%v", err)
		})
	}
}

// TestSeedUnknownCluster checks that two equal digests of an address are not enough.
func TestSeedUnknownCluster(t *testing.T) {
	cfg := &rest.Config{Host: "http://server", Transport: &member{}}
	c, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, c.SeedFrom(cfg))
	require.ErrorContains(t, c.Source(SourceOptions{Resource: pods}).seed.check(t.Context(), pods), "known by the namespace kube-system")
}
