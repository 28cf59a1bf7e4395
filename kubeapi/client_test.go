package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
)

// answer is the ResponseWriter of a watch whose frames are read beside it.
type answer struct {
	ctx  context.Context
	gate chan struct{} // a Write needs one value of it; nil for a fast reader

	mu     sync.Mutex
	header http.Header
	code   int
	buf    bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }
func (a *answer) Flush()              {}
func (a *answer) WriteHeader(code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.code = code
}

func (a *answer) Write(p []byte) (int, error) {
	if a.gate != nil {
		select {
		case <-a.gate:
		case <-a.ctx.Done():
			return 0, errors.New("the client is gone")
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.buf.Write(p)
}

// frame is a frame of a watch.
type frame struct {
	Type   string
	Object struct {
		Kind, APIVersion, Message, Reason string
		Code                              int
		Metadata                          struct {
			Name, Namespace, UID, ResourceVersion string
			Annotations, Labels                   map[string]string
		}
		Spec              struct{ NodeName string }
		ColumnDefinitions []any
		Rows              []struct {
			Cells  []any
			Object struct {
				Kind     string
				Metadata struct{ Name string }
			}
		}
	}
	raw string
}

func (f *frame) String() string {
	m := f.Object.Metadata
	switch {
	case f.Type == "ERROR":
		return fmt.Sprintf("ERROR %d", f.Object.Code)
	case f.Type == "BOOKMARK" && m.Annotations["k8s.io/initial-events-end"] == "true":
		return "BOOKMARK end@" + m.ResourceVersion
	case f.Type == "BOOKMARK":
		return "BOOKMARK @" + m.ResourceVersion
	}
	return fmt.Sprintf("%s %s/%s@%s", f.Type, m.Namespace, m.Name, m.ResourceVersion)
}

// stream is an open watch.
type stream struct {
	*answer
	t      require.TestingT
	cancel context.CancelFunc
	done   chan struct{}
	cut    bool // the connection was cut by the server
}

// watch opens a watch. A slow reader gets a byte only after pass.
func watch(t require.TestingT, s *Server, slow bool, url string, header ...string) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	a := &answer{ctx: ctx, header: http.Header{}}
	if slow {
		a.gate = make(chan struct{})
	}
	st := &stream{answer: a, t: t, cancel: cancel, done: make(chan struct{})}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	go func() {
		defer close(st.done)
		defer func() {
			if p := recover(); p != nil {
				st.cut = true
			}
		}()
		s.ServeHTTP(a, r)
	}()
	return st
}

// pass lets a number of writes to a slow reader pass.
func (s *stream) pass(n int) {
	for range n {
		select {
		case s.gate <- struct{}{}:
		default:
		}
	}
}

// close ends the watch as a client does.
func (s *stream) close() {
	s.cancel()
	<-s.done
}

// ended reports whether the server has ended the watch.
func (s *stream) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// frames returns at most n frames that were not taken before.
func (s *stream) frames(n int) (out []*frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; n > 0; n-- {
		i := bytes.IndexByte(s.buf.Bytes(), '\n')
		if i < 0 {
			break
		}
		line := string(s.buf.Next(i + 1))
		f := &frame{raw: line}
		require.NoError(s.t, json.Unmarshal([]byte(line), f), line)
		out = append(out, f)
	}
	return out
}

// texts returns the frames that were not taken before.
func (s *stream) texts() (out []string) {
	for _, f := range s.frames(1 << 20) {
		out = append(out, f.String())
	}
	return out
}

// items is the answer to a list.
type items struct {
	Code     int
	Message  string
	Reason   string
	Metadata struct {
		ResourceVersion, Continue string
		RemainingItemCount        *int64
	}
	Items []struct {
		Metadata struct {
			Name, Namespace, UID, ResourceVersion string
			Labels                                map[string]string
		}
	}
	header http.Header
	raw    string
}

// ask answers a request that is no watch.
func ask(t require.TestingT, s *Server, url string, header ...string) *items {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, url, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	s.ServeHTTP(w, r)
	l := &items{}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), l), w.Body.String())
	l.Code, l.header, l.raw = w.Code, w.Header(), w.Body.String()
	return l
}

// names returns the keys with their versions, in the answer's order.
func (l *items) names() (out []string) {
	for _, i := range l.Items {
		out = append(out, i.Metadata.Namespace+"/"+i.Metadata.Name+"@"+i.Metadata.ResourceVersion)
	}
	return out
}

// reflector is a client of the model: it lists, watches and resumes, and checks all that it gets.
type reflector struct {
	selection
	w         *world
	bookmarks bool
	streaming bool // begins with sendInitialEvents
	slow      bool

	rv      int  // 0 before a list
	inside  bool // it stopped within a replay, so that its state is of no resourceVersion
	have    map[string]string
	initial bool
	last    string // key, of the initial events
	stream  *stream
	got     []string // of the stream

	lists, expired, cuts int
}

func (c *reflector) url(query string) string {
	return c.path + "?" + strings.Trim(c.query+"&"+query, "&")
}

// open lists if there is no state, and watches.
func (c *reflector) open() {
	if c.stream != nil {
		return
	}
	query := "watch=1&resourceVersion=" + strconv.Itoa(c.rv)
	if c.bookmarks {
		query += "&allowWatchBookmarks=true"
	}
	switch {
	case c.rv == 0 && c.streaming && c.bookmarks:
		query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
		c.initial, c.have, c.last = true, map[string]string{}, ""
		c.lists++
	case c.rv == 0:
		l := ask(c.w.t, c.w.server, c.url(""))
		require.Equal(c.w.t, http.StatusOK, l.Code, l.Message)
		c.rv, c.have = number(c.w.t, l.Metadata.ResourceVersion), map[string]string{}
		for _, i := range l.Items {
			c.have[i.Metadata.Namespace+"/"+i.Metadata.Name] = i.Metadata.UID + "@" + i.Metadata.ResourceVersion
		}
		require.Equal(c.w.t, c.of(c.w.stateAt(c.rv)), c.have, "the list at %d", c.rv)
		c.lists++
		query = strings.Replace(query, "resourceVersion=0", "resourceVersion="+strconv.Itoa(c.rv), 1)
	}
	c.got = nil
	c.stream = watch(c.w.t, c.w.server, c.slow, c.url(query))
}

// close drops what was not read.
func (c *reflector) close() {
	if c.stream == nil {
		return
	}
	c.stream.close()
	c.stream = nil
	if c.initial {
		c.rv, c.initial = 0, false
	}
	if c.inside = c.rv > 0 && !maps.Equal(c.of(c.w.stateAt(c.rv)), c.have); c.inside {
		require.True(c.w.t, c.bookmarks)
		c.cuts++
	}
}

// read takes at most n frames.
func (c *reflector) read(n int) {
	if c.stream == nil {
		return
	}
	for _, f := range c.stream.frames(n) {
		c.got = append(c.got, f.String())
		if !c.frame(f) {
			c.close()
			c.rv, c.have, c.inside = 0, nil, false
			c.expired++
			return
		}
	}
	if c.stream.ended() && c.stream.buf.Len() == 0 {
		c.close()
	}
}

// frame checks a frame. It returns false for the end of the watch.
func (c *reflector) frame(f *frame) bool {
	t, m := c.w.t, f.Object.Metadata
	key, version := m.Namespace+"/"+m.Name, m.UID+"@"+m.ResourceVersion
	if f.Type == "ERROR" {
		require.Equal(t, http.StatusGone, f.Object.Code, f.raw)
		require.True(t, !c.bookmarks || c.w.skipped(c.rv) || int64(c.rv) < c.w.bareTo.Load(), "a client that asks for bookmarks: %s after %v", f.raw, c.got)
		return false
	}
	rv := number(t, m.ResourceVersion)
	if c.initial && f.Type != "BOOKMARK" {
		require.Equal(t, "ADDED", f.Type)
		require.Less(t, c.last, key, "initial events are in key order")
		c.last, c.have[key] = key, version
		return true
	}
	_, had := c.have[key]
	switch f.Type {
	case "BOOKMARK":
		require.True(t, c.bookmarks)
		require.GreaterOrEqual(t, rv, c.rv, "%v", c.got)
		c.initial, c.inside, c.rv = false, false, rv
		require.Equal(t, c.of(c.w.stateAt(rv)), c.have, "all up to the bookmark was delivered: %v", c.got)
		return true
	case "ADDED":
		require.False(t, had, "%s for a known object: %v", f, c.got)
		c.have[key] = version
	case "MODIFIED":
		require.True(t, had || c.inside, "%s for an unknown object: %v", f, c.got)
		c.have[key] = version
	case "DELETED":
		require.True(t, had || c.inside, "%s for an unknown object: %v", f, c.got)
		delete(c.have, key)
	default:
		require.Fail(t, "unknown type", f.raw)
	}
	require.Greater(t, rv, c.rv, "ascending: %v", c.got)
	if f.Type != "DELETED" {
		require.Equal(t, c.of(c.w.stateAt(rv))[key], version, "a state of the object: %v", c.got)
	}
	if !c.bookmarks {
		require.Equal(t, c.next(), f.String(), "the exact event after %d: %v", c.rv, c.got)
		require.Equal(t, c.of(c.w.stateAt(rv)), c.have)
	}
	c.rv = rv
	return true
}

// next returns the first event of the model after the client's resourceVersion.
func (c *reflector) next() string {
	for _, x := range c.w.log {
		if x.rv > c.rv {
			if e := c.event(x); e != "" {
				return e
			}
		}
	}
	return ""
}

func number(t require.TestingT, rv string) int {
	n, err := strconv.Atoi(rv)
	require.NoError(t, err)
	return n
}
