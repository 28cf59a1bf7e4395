package statuspage

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/localapi"
)

// watched is a served page with a variable number of objects and a fake clock.
type watched struct {
	objects atomic.Int64
	asked   chan struct{} // one element for each call of Status
	clock   *testingclock.FakeClock
	done    chan struct{}
	server  *httptest.Server
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{asked: make(chan struct{}, 1000), clock: testingclock.NewFakeClock(now), done: make(chan struct{})}
	source := statusSource{status: func() (*localapi.Status, error) {
		w.asked <- struct{}{}
		return &localapi.Status{Collections: []localapi.Collection{{ID: "pods", Synced: true, CaughtUp: true, Objects: w.objects.Load()}}}, nil
	}}
	w.server = httptest.NewServer(Handler(Options{Source: source, Clock: w.clock, Done: w.done}))
	t.Cleanup(w.server.Close)
	return w
}

// answer is the result of opening the stream.
type answer struct {
	code int
	kind string
	body io.ReadCloser
}

// open opens the stream.
func (w *watched) open(t *testing.T) answer {
	t.Helper()
	resp, err := w.server.Client().Get(w.server.URL + "/events")
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Body}
}

// second advances the clock by a second, and returns when the status was read.
func (w *watched) second(t *testing.T) {
	t.Helper()
	w.clock.Step(time.Second)
	select {
	case <-w.asked:
	case <-time.After(time.Minute):
		t.Fatal("the status was not read")
	}
}

// A stream sends the content at once, again when it changed, and a keep-alive when it did not. It
// ends with the agent.
func TestEvents(t *testing.T) {
	w := newWatched(t)
	w.objects.Store(5)
	stream := w.open(t)
	require.Equal(t, "text/event-stream", stream.kind)
	lines := bufio.NewScanner(stream.body)
	lines.Buffer(nil, 1<<20)
	next := func() string {
		require.True(t, lines.Scan(), "the stream ended: %v", lines.Err())
		line := lines.Text()
		require.True(t, lines.Scan())
		require.Empty(t, lines.Text(), "an event ends with an empty line")
		return line
	}
	content := func(line string) string {
		var html string
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &html))
		return html
	}
	require.Contains(t, content(next()), "<b>5</b> objects")
	<-w.asked
	require.Eventually(t, w.clock.HasWaiters, time.Minute, time.Millisecond)
	for range 3 {
		w.second(t)
	}
	w.objects.Store(6)
	w.second(t)
	require.Contains(t, content(next()), "<b>6</b> objects", "the next event has the changed content")
	for range keepAlive / time.Second {
		w.second(t)
	}
	require.Equal(t, ":", next())
	close(w.done)
	rest, err := io.ReadAll(stream.body)
	require.NoError(t, err)
	require.Empty(t, rest)
}

// If too many viewers are connected, another stream is refused, but not the page. A viewer that
// disconnects frees a place.
func TestEventsBounded(t *testing.T) {
	w := newWatched(t)
	var all []answer
	for range maxViewers {
		stream := w.open(t)
		require.Equal(t, http.StatusOK, stream.code)
		all = append(all, stream)
	}
	require.Equal(t, http.StatusServiceUnavailable, w.open(t).code)
	resp, err := w.server.Client().Get(w.server.URL + "/")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	resp.Body.Close()
	all[0].body.Close()
	require.Eventually(t, func() bool { return w.open(t).code == http.StatusOK }, time.Minute, 100*time.Millisecond)
	close(w.done)
}
