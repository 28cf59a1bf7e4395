package upstream

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
)

func TestNewest(t *testing.T) {
	for _, tc := range []struct {
		name string
		code int
		body string
		want string
		err  ErrorClass
		is   error
		age  string // header
	}{
		{"empty", 200, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9"},"items":[]}`, "9", "", nil, ""},
		{"one of many", 200, `{"metadata":{"resourceVersion":"11","continue":"x","remainingItemCount":3},"items":[{"metadata":{"name":"a","resourceVersion":"4"}}]}`, "11", "", nil, ""},
		{"no resourceVersion", 200, `{"metadata":{},"items":[]}`, "", Other, ErrBadList, ""},
		{"zero", 200, `{"metadata":{"resourceVersion":"0"},"items":[]}`, "", Other, ErrBadList, ""},
		{"one object", 200, `{"kind":"Till","metadata":{"resourceVersion":"9"}}`, "", Other, ErrBadList, ""},
		{"cut", 200, `{"metadata":{"resourceVersion":"9"},"items":[`, "", Other, object.ErrInvalid, ""},
		{"forbidden", 403, statusBody(403, "Forbidden", "no", ""), "", Forbidden, nil, ""},
		{"busy", 429, "busy", "", Throttled, nil, ""},
		{"down", 503, "down", "", Server, nil, ""},
		{"an agent", 200, `{"metadata":{"resourceVersion":"9"},"items":[]}`, "9", "", nil, "0"},
		{"an agent that is cut off", 200, `{"metadata":{"resourceVersion":"9"},"items":[]}`, "", Unreachable, ErrCutOff, "7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			requests := 0
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				require.Equal(t, "/apis/shop.example.com/v1/namespaces/shop/tills?fieldSelector=spec.size%3D3&labelSelector=a%3Db&limit=1", r.URL.String())
				require.Equal(t, acceptMetadataList, r.Header.Get("Accept"))
				w.Header().Set("Retry-After", "3600")
				if tc.age != "" {
					w.Header().Set("Age", tc.age)
				}
				reply(w, tc.code, tc.body)
			})
			s := c.Source(SourceOptions{Resource: tills, Namespace: "shop", LabelSelector: "a=b", FieldSelector: "spec.size=3", Protobuf: true})
			rv, err := s.Newest(t.Context())
			require.Equal(t, tc.err, Classify(err), "%v", err)
			require.Equal(t, tc.want, rv)
			require.Equal(t, 1, requests, "its caller retries")
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			}
		})
	}
}

// TestFollow: a resource whose group names list and watch may offer neither in a form that a cache can follow.
func TestFollow(t *testing.T) {
	listed := `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9"},"items":[]}`
	for _, tc := range []struct {
		name, list string
		watch      int
		kind       ErrorClass
		text       string
	}{
		{"it can be followed", listed, 200, "", ""},
		{"lists without a resourceVersion", `{"kind":"PartialObjectMetadataList","metadata":{},"items":[]}`, 200, Other, "no resourceVersion"},
		{"lists of no state", `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"0"},"items":[]}`, 200, Other, "no resourceVersion"},
		{"no watch", listed, 405, Other, "405"},
		{"a server that is down", listed, 503, Server, "503"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") == "" {
					reply(w, 200, tc.list)
					return
				}
				require.Equal(t, "9", r.URL.Query().Get("resourceVersion"))
				reply(w, tc.watch, "")
			})
			err := c.Source(SourceOptions{Resource: tills}).Follow(t.Context())
			require.Equal(t, tc.kind, Classify(err), "%v", err)
			require.Contains(t, Describe(err), tc.text)
		})
	}
}
