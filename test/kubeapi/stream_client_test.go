package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selection is what a client asks for.
type selection struct {
	resource  string // of the core group
	namespace string // empty for all
	labels    string // selectors; empty for all
	fields    string
}

// matcher returns the function that reports whether an object is selected.
func (s selection) matcher() (func(version) bool, error) {
	byLabels, err := labels.Parse(s.labels)
	if err != nil {
		return nil, err
	}
	byFields, err := fields.ParseSelector(s.fields)
	if err != nil {
		return nil, err
	}
	return func(v version) bool {
		return (s.namespace == "" || v.fields["metadata.namespace"] == s.namespace) && byLabels.Matches(v.labels) && byFields.Matches(v.fields)
	}, nil
}

// request returns the path and the query for the selection.
func (s selection) request() (path string, query url.Values) {
	path, query = "/api/v1/"+s.resource, url.Values{}
	if s.namespace != "" {
		path = "/api/v1/namespaces/" + s.namespace + "/" + s.resource
	}
	for parameter, value := range map[string]string{"labelSelector": s.labels, "fieldSelector": s.fields} {
		if value != "" {
			query.Set(parameter, value)
		}
	}
	return path, query
}

// frame is one frame of a watch.
type frame struct {
	typ string // BOOKMARK too
	version
}

const bookmark = "BOOKMARK"

// stream is what a client got by one connection: a watch, or a list, which is recorded as ADDED for
// each object and a bookmark at its resourceVersion, like the beginning of a watch that sends initial
// events.
type stream struct {
	from   uint64 // the resourceVersion that was asked for; 0 for none
	begins bool   // with all objects, up to the first bookmark
	frames []frame
}

// whole reports whether a client that begins with the stream has a state to continue from.
func (s *stream) whole() bool {
	return slices.ContainsFunc(s.frames, func(f frame) bool { return f.typ == bookmark })
}

// streamClient lists, watches, continues after each end of a connection, and records what it gets.
type streamClient struct {
	name string
	selection

	bookmarks    bool // asks for bookmarks
	initial      bool // begins with a watch for initial events in place of a list; needs bookmarks
	fromBookmark bool // continues from its last bookmark in place of its last frame; needs bookmarks
	cuts         bool // ends connections itself, after a random number of frames

	away time.Duration // the longest time after a connection until the next one

	target *target
	random *rand.Rand

	streams  []stream
	rv       uint64        // from which it continues
	complete atomic.Uint64 // up to which it certainly has everything

	expired int         // how many watches ended with 410
	refused map[int]int // other answers than 200, by status
}

// run follows the selection until ctx ends. An error is an answer that no client can use.
func (c *streamClient) run(ctx context.Context) error {
	defer c.target.client.CloseIdleConnections()
	c.refused = map[int]int{}
	for begins := true; ctx.Err() == nil; {
		s := stream{from: c.rv, begins: begins}
		code, err := c.get(ctx, &s)
		if len(s.frames) > 0 {
			c.streams = append(c.streams, s)
		}
		switch {
		case err != nil && code == http.StatusOK:
			return fmt.Errorf("client %s, in the stream from %d: %w", c.name, s.from, err)
		case code == http.StatusGone:
			c.expired++
			begins = true
		case code != 0 && code != http.StatusOK:
			c.refused[code]++
		case begins:
			begins = !s.whole()
		}
		pause := time.Duration(0)
		switch {
		case len(s.frames) == 0: // the agent does not run, or has nothing new
			pause = pollEvery
		case c.away > 0:
			pause = time.Duration(c.random.Int64N(int64(c.away)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// get makes one request, and adds what comes to the stream. The code is 0 if the connection failed, and
// that of the ERROR frame if there was one. An error with the code 200 is that of an unusable answer.
func (c *streamClient) get(ctx context.Context, s *stream) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	path, query := c.request()
	if s.from != 0 {
		query.Set("resourceVersion", strconv.FormatUint(s.from, 10))
	}
	list := s.begins && !c.initial
	if !list {
		query.Set("watch", "1")
		query.Set("timeoutSeconds", strconv.Itoa(3+c.random.IntN(5))) // the last bookmark comes 2 s before
		query.Set("allowWatchBookmarks", strconv.FormatBool(c.bookmarks))
	}
	if s.begins && c.initial {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.target.base.String()+path+"?"+query.Encode(), nil)
	if err != nil {
		return http.StatusOK, err
	}
	req.Header.Set("Authorization", "Bearer "+c.target.token)
	res, err := c.target.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode != http.StatusOK:
		return res.StatusCode, nil
	case list:
		return c.readList(res.Body, s)
	}
	return c.readFrames(res.Body, s)
}

// readList adds the items of a list, if it is whole.
func (c *streamClient) readList(body io.Reader, s *stream) (code int, err error) {
	raw, err := io.ReadAll(body)
	if err != nil {
		return 0, err
	}
	var l struct {
		Metadata struct{ ResourceVersion string }
		Items    []json.RawMessage
	}
	if err := json.Unmarshal(raw, &l); err != nil {
		return http.StatusOK, err
	}
	end := version{}
	if end.rv, err = strconv.ParseUint(l.Metadata.ResourceVersion, 10, 64); err != nil {
		return http.StatusOK, err
	}
	var frames []frame
	for _, item := range l.Items {
		v, err := parseVersion(item)
		if err != nil {
			return http.StatusOK, err
		}
		frames = append(frames, frame{typ: "ADDED", version: v})
	}
	s.frames = append(frames, frame{typ: bookmark, version: end})
	c.rv = end.rv
	c.complete.Store(end.rv)
	return http.StatusOK, nil
}

// readFrames adds the frames of a watch until it ends.
func (c *streamClient) readFrames(body io.Reader, s *stream) (code int, err error) {
	whole := !s.begins // whether the client has a state to continue from
	left := -1
	if c.cuts && c.random.IntN(2) == 0 {
		left = c.random.IntN(30)
	}
	for decoder := json.NewDecoder(body); left != 0; left-- {
		var f struct {
			Type   string
			Object json.RawMessage
		}
		if err := decoder.Decode(&f); err != nil {
			if errors.As(err, new(*json.SyntaxError)) {
				return http.StatusOK, err
			}
			return 0, err // it was cut, or it ended
		}
		if f.Type == "ERROR" {
			var status struct{ Code int }
			if err := json.Unmarshal(f.Object, &status); err != nil {
				return http.StatusOK, err
			}
			return status.Code, nil
		}
		v, err := parseVersion(f.Object)
		if err != nil {
			return http.StatusOK, err
		}
		s.frames = append(s.frames, frame{typ: f.Type, version: v})
		whole = whole || f.Type == bookmark
		if f.Type == bookmark || whole && !c.fromBookmark {
			c.rv = v.rv
		}
		if f.Type == bookmark || whole && !c.bookmarks {
			c.complete.Store(v.rv)
		}
	}
	return 0, nil
}
