package upstream

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProbe(t *testing.T) {
	const cause = `{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1}`
	for name, tc := range map[string]struct {
		code int
		body string
		kind ErrorKind
	}{
		"at or past":    {200, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9"},"items":[]}`, ""},
		"behind":        {504, statusBody(504, "Timeout", "Too large resource version: 9, current: 5", cause), Ahead},
		"behind, old":   {504, statusBody(504, "Timeout", "Timeout: Too large resource version: 9, current: 5", ""), Ahead},
		"other timeout": {504, statusBody(504, "Timeout", "request timed out", ""), Server},
		"gone":          {404, statusBody(404, "NotFound", "no", ""), Gone},
		"expired":       {410, statusBody(410, "Expired", "old", ""), Expired},
		"forbidden":     {403, statusBody(403, "Forbidden", "no", ""), Forbidden},
		"busy":          {429, "busy", Throttled},
		"down":          {503, "down", Server},
	} {
		t.Run(name, func(t *testing.T) {
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
			require.Equal(t, tc.kind, Kind(err), "%v", err)
			if tc.kind == Ahead {
				require.ErrorIs(t, err, ErrAhead)
			} else {
				require.NotErrorIs(t, err, ErrAhead)
			}
			require.Equal(t, 1, requests, "the caller decides on when to ask again")
		})
	}
}

// A server that does not know limit must not make a probe into a list.
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
