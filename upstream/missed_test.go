package upstream

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMissed_Timeout: a watch without an event has answered if it lasted for its second, which the server counts
// from the request: on a busy machine or a slow link the header of the answer comes late.
func TestMissed_Timeout(t *testing.T) {
	for _, tc := range []struct {
		name         string
		header, rest time.Duration // until the header, and from then on until the end
		is           error
	}{
		{"at once", 0, time.Second, nil},
		{"late header", 800 * time.Millisecond, 200 * time.Millisecond, nil},
		{"ends early", 100 * time.Millisecond, 100 * time.Millisecond, ErrSilent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(&rest.Config{Host: "http://server", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
					time.Sleep(tc.header)
					body, end := io.Pipe()
					time.AfterFunc(tc.rest, func() { _ = end.Close() })
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
				})})
				require.NoError(t, err)
				missed, err := c.Source(SourceOptions{Resource: tills}).Missed(t.Context(), "5")
				require.ErrorIs(t, err, tc.is)
				require.Empty(t, missed)
			})
		})
	}
}

// TestMissed_Replayed: a proxy that sends an older answer again has not answered.
func TestMissed_Replayed(t *testing.T) {
	for _, typ := range []string{"ADDED", "BOOKMARK"} {
		c, err := New(&rest.Config{Host: "http://server", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			body := io.NopCloser(strings.NewReader(`{"type":"` + typ + `","object":{"metadata":{"resourceVersion":"4"}}}`))
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
		})})
		require.NoError(t, err)
		missed, err := c.Source(SourceOptions{Resource: tills}).Missed(t.Context(), "5")
		require.ErrorIs(t, err, ErrSilent)
		require.ErrorContains(t, err, "sent the resourceVersion 4 after 5")
		require.Empty(t, missed)
	}
}
