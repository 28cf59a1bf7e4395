package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProbe(t *testing.T) {
	for _, tc := range []struct {
		name string
		code int
		body string
		kind ErrorClass
	}{
		{"at or past", 200, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9"},"items":[]}`, ""},
		{"other timeout", 504, statusBody(504, "Timeout", "request timed out", ""), Server},
		{"gone", 404, statusBody(404, "NotFound", "no", ""), Gone},
		{"expired", 410, statusBody(410, "Expired", "old", ""), Expired},
		{"forbidden", 403, statusBody(403, "Forbidden", "no", ""), Forbidden},
		{"busy", 429, "busy", Throttled},
		{"down", 503, "down", Server},
	} {
		t.Run(tc.name, func(t *testing.T) {
			requests := 0
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				require.Equal(t, "/apis/shop.example.com/v1/namespaces/shop/tills?fieldSelector=metadata.name%3Dx&labelSelector=a%3Db"+
					"&limit=1&resourceVersion=9&resourceVersionMatch=NotOlderThan", r.URL.String())
				require.Contains(t, r.Header.Get("Accept"), "as=PartialObjectMetadataList;")
				w.Header().Set("Retry-After", "3600")
				reply(w, tc.code, tc.body)
			})
			s := c.Source(SourceOptions{Resource: tills, Namespace: "shop", LabelSelector: "a=b", FieldSelector: "metadata.name=x"})
			err := s.Probe(context.Background(), "9")
			require.Equal(t, tc.kind, Classify(err), "%v", err)
			require.NotErrorIs(t, err, ErrAhead)
			require.Equal(t, 1, requests, "the probe does not retry; its caller does")
		})
	}
}

// If a server refuses a resourceVersion, the probe reads the cluster's newest state, to distinguish
// a lagging server from a cluster that went back.
func TestProbeBehind(t *testing.T) {
	const cause = `{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1}`
	tooLarge := statusBody(504, "Timeout", "Too large resource version: 9, current: 5", cause)
	newest := func(rv string) string {
		return `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"` + rv + `"},"items":[]}`
	}
	for _, tc := range []struct {
		name    string
		refusal string
		code    int
		newest  string
		is      error // nil for neither
		kind    ErrorClass
	}{
		{"the cluster is behind", tooLarge, 200, newest("8"), ErrAhead, Ahead},
		{"the same, an old server", statusBody(504, "Timeout", "Timeout: Too large resource version: 9, current: 5", ""), 200, newest("8"), ErrAhead, Ahead},
		{"the cluster is there", tooLarge, 200, newest("9"), ErrLags, Ahead},
		{"the cluster is past it", tooLarge, 200, newest("10"), ErrLags, Ahead},
		{"the newest state can't be compared", tooLarge, 200, newest("x"), ErrAhead, Ahead},
		{"the newest state is missing", tooLarge, 200, newest(""), ErrAhead, Ahead},
		{"the newest state is refused too", tooLarge, 504, tooLarge, nil, Ahead},
		{"the newest state can't be read", tooLarge, 503, "down", nil, Server},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked []string
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.RawQuery)
				require.Contains(t, r.Header.Get("Accept"), "as=PartialObjectMetadataList;")
				if len(asked) == 1 {
					reply(w, 504, tc.refusal)
					return
				}
				reply(w, tc.code, tc.newest)
			})
			err := podSource(c).Probe(context.Background(), "9")
			require.Equal(t, []string{"limit=1&resourceVersion=9&resourceVersionMatch=NotOlderThan", "limit=1"}, asked)
			require.Equal(t, tc.kind, Classify(err), "%v", err)
			for _, is := range []error{ErrAhead, ErrLags} {
				require.Equal(t, errors.Is(tc.is, is), errors.Is(err, is), "%v: %v", is, err)
			}
		})
	}
}

// A server that ignores limit must not turn a probe into a list.
func TestProbeReadsLittle(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		line := strings.Repeat("x", 1<<16)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	})
	s := podSource(c)
	require.NoError(t, s.Probe(context.Background(), "9"))
	require.Less(t, s.BytesReceived(), int64(1<<20))
}
