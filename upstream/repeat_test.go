package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

// breaking is a server of a list of three pages of 10 objects. The first answers for a page break after
// so many objects, or are 410 for expired and 429 for busy; later ones are whole.
type breaking struct {
	breaks [3][]int

	mu    sync.Mutex
	asked [3]int // for each page
}

const (
	expired = 10
	busy    = 11 // 429 with the time to wait of an hour
)

// RoundTrip implements [http.RoundTripper].
func (s *breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	token := r.URL.Query().Get("continue")
	s.mu.Lock()
	defer s.mu.Unlock()
	page, end := 0, -1
	if _, err := fmt.Sscanf(token, "page-%d", &page); token != "" && err != nil {
		return nil, err
	}
	if s.asked[page] < len(s.breaks[page]) {
		end = s.breaks[page][s.asked[page]]
	}
	s.asked[page]++
	header := http.Header{"Content-Type": []string{"application/json"}}
	if end == expired {
		return &http.Response{StatusCode: http.StatusGone, Header: header, Body: io.NopCloser(strings.NewReader(statusBody(410, "Expired", "too old", "")))}, nil
	}
	if end == busy {
		header.Set("Retry-After", "3600")
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: header, Body: io.NopCloser(strings.NewReader("busy"))}, nil
	}
	next := ""
	if page < 2 {
		next = fmt.Sprintf("page-%d", page+1)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":%q},"items":[`, next)
	for i := range 10 {
		if i == end {
			return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(io.MultiReader(strings.NewReader(b.String()), broken{}))}, nil
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"metadata":{"name":"p-%02d","namespace":"n"}}`, page*10+i)
	}
	b.WriteString("]}")
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(b.String()))}, nil
}

// broken is the end of a connection.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestListRepeatsPages checks that a later page whose connection breaks is requested again, and that
// each object is delivered once.
func TestListRepeatsPages(t *testing.T) {
	for _, tc := range []struct {
		name   string
		breaks [3][]int
		want   ErrorClass
		asked  [3]int
		took   time.Duration
	}{
		{"none", [3][]int{}, "", [3]int{1, 1, 1}, 0},
		{"in the middle", [3][]int{{}, {4}}, "", [3]int{1, 2, 1}, time.Second},
		{"at the beginning, and of the last page", [3][]int{{}, {0}, {9}}, "", [3]int{1, 2, 2}, 2 * time.Second},
		{"again, sooner", [3][]int{{}, {7, 3, 0, 8}}, "", [3]int{1, 5, 1}, 1*time.Second + 2*time.Second + 4*time.Second + time.Second},
		{"with progress each time", [3][]int{{}, {1, 2, 3, 4, 5, 6, 7, 8, 9}}, "", [3]int{1, 10, 1}, 9 * time.Second},
		{"without progress", [3][]int{{}, {1, 1, 1, 1, 1, 1, 1}}, Unreachable, [3]int{1, pageAttempts, 1}, 31 * time.Second},
		{"expired meanwhile", [3][]int{{}, {4, expired}}, Expired, [3]int{1, 2, 1}, time.Second},
		{"an hour asked for", [3][]int{{}, {busy, busy}}, "", [3]int{1, 3, 1}, 2 * maxPageDelay},
		{"an hour asked for, each time", [3][]int{{}, {busy, busy, busy, busy, busy, busy}}, Throttled, [3]int{1, 6, 0}, 5 * maxPageDelay},
		{"the first page", [3][]int{{4}}, Unreachable, [3]int{1, 0, 0}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &breaking{breaks: tc.breaks}
				c, err := New(&rest.Config{Host: "http://server", Transport: server})
				require.NoError(t, err)
				var keys []string
				counted, began := int64(0), time.Now()
				_, err = c.Source(SourceOptions{Resource: pods}).List(context.Background(), ListOptions{
					PageSize: 10, Progress: func(count, _ int64) { counted = count },
				}, func(o *object.Object) error {
					keys = append(keys, o.Key())
					return nil
				})
				require.Equal(t, tc.want, Classify(err), "%v", err)
				if tc.want == "" {
					require.Len(t, keys, 30)
					require.Equal(t, int64(30), counted)
				}
				for i, key := range keys {
					require.Equal(t, fmt.Sprintf("n/p-%02d", i), key)
				}
				require.Equal(t, tc.asked, server.asked)
				require.InDelta(t, tc.took, time.Since(began), float64(time.Second)*1.01)
			})
		})
	}
}
