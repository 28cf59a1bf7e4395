package upstream

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/object"
)

// TestRetryAfter: the time that a busy server names, in the header or in the Status too, is in the error of
// each request, so that the caller can wait for so long. No request waits itself.
func TestRetryAfter(t *testing.T) {
	for _, tc := range []struct{ name, body string }{
		{"a Status", statusBody(429, "TooManyRequests", "too many lists are being sent", `{"retryAfterSeconds":37}`)},
		{"text", "busy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "37")
				reply(w, http.StatusTooManyRequests, tc.body)
			})
			s := podSource(c)
			ctx, began := context.Background(), time.Now()
			_, listed := s.List(ctx, ListOptions{PageSize: 500}, func(*object.Object) error { return nil })
			_, watched := s.Watch(ctx, "5", time.Minute)
			_, identified := c.Identity(ctx)
			for _, err := range []error{listed, watched, s.Probe(ctx, "5"), identified} {
				seconds, ok := apierrors.SuggestsClientDelay(err)
				require.True(t, ok, "%v", err)
				require.Equal(t, 37, seconds)
				require.Equal(t, Throttled, Classify(err))
			}
			require.Less(t, time.Since(began), 30*time.Second)
		})
	}
}
