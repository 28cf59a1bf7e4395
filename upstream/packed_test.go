package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/object"
)

// TestPacked checks that a list and a watch are read that an agent has packed, each event once it comes,
// and that received bytes are counted as they came.
func TestPacked(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	next := make(chan string)
	var sent atomic.Int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "zstd, gzip", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Type", "application/json")
		send := func(b []byte) {
			n, err := w.Write(b)
			require.NoError(t, err)
			sent.Add(int64(n))
			require.NoError(t, http.NewResponseController(w).Flush())
		}
		if r.URL.Query().Get("watch") == "" {
			w.Header().Set("Content-Encoding", "zstd")
			for _, frame := range []string{
				`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[`,
				`{"metadata":{"name":"a","namespace":"n","labels":{"x":"` + strings.Repeat("y", 10_000) + `"}}}]}`,
			} {
				send(encoder.EncodeAll([]byte(frame), nil))
			}
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		send(nil)
		var packed bytes.Buffer
		zw := gzip.NewWriter(&packed)
		for e := range next {
			_, _ = io.WriteString(zw, e)
			_ = zw.Flush()
			send(packed.Next(packed.Len()))
		}
		_ = zw.Close()
		send(packed.Bytes())
	}
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			next = make(chan string)
			sent.Store(0)
			s := p.serve(t, handler).Source(SourceOptions{Resource: pods})
			var keys []string
			rv, err := s.List(context.Background(), ListOptions{}, func(o *object.Object) error {
				keys = append(keys, o.Key())
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, "12", rv)
			require.Equal(t, []string{"n/a"}, keys)
			w, err := s.Watch(context.Background(), "12", time.Minute)
			require.NoError(t, err)
			for i := range 3 {
				next <- event("MODIFIED", fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"%d"}}`, 13+i)) + "\n"
				e := <-w.ResultChan()
				require.Equal(t, fmt.Sprintf("MODIFIED Pod n/a@%d", 13+i), show(e.Type, e.Object))
			}
			close(next)
			require.Empty(t, collect(w))
			w.Stop()
			require.Equal(t, sent.Load(), s.BytesReceived())
			require.Less(t, sent.Load(), int64(1000))
		})
	}
}

// TestPackedWatchConnectionLost checks that a packed watch whose connection breaks in the middle ends
// as any other.
func TestPackedWatchConnectionLost(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	line := event("ADDED", smallPod) + "\n"
	whole := encoder.EncodeAll([]byte(line), nil)
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(zw, line)
	_ = zw.Flush()
	for _, tc := range []struct {
		name, encoding string
		body           []byte
	}{
		{"within a frame", "zstd", append(append([]byte(nil), whole...), whole[:len(whole)/2]...)},
		{"no frame", "zstd", append(append([]byte(nil), whole...), "not a frame of zstd"...)},
		{"gzip without its end", "gzip", zipped.Bytes()},
		{"no gzip", "gzip", append(append([]byte(nil), zipped.Bytes()...), 0xff, 0xff, 0xff)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Encoding", tc.encoding)
				_, _ = w.Write(tc.body)
			})
			w, err := c.Source(SourceOptions{Resource: pods}).Watch(context.Background(), "5", time.Minute)
			require.NoError(t, err)
			defer w.Stop()
			got := collect(w)
			require.Len(t, got, 2)
			require.Equal(t, "ADDED Pod n/a@7", got[0])
			require.Contains(t, got[1], string(ReasonConnectionLost))
		})
	}
}

// TestDropHeader checks that lists and watches name what is dropped, for a server that can leave it out.
func TestDropHeader(t *testing.T) {
	prune := object.NewPrune(object.ManagedFields, `metadata.annotations.example\.com/a`)
	requests := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		require.Equal(t, prune.Paths(), r.Header.Values(object.DropHeader))
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[]}`)
		}
	})
	s := c.Source(SourceOptions{Resource: pods, Prune: prune})
	_, err := s.List(t.Context(), ListOptions{}, nil)
	require.NoError(t, err)
	w, err := s.Watch(t.Context(), "12", time.Minute)
	require.NoError(t, err)
	require.Empty(t, collect(w))
	w.Stop()
	require.Equal(t, 2, requests)
}

// TestPackedListCorrupt checks that a list with a flipped bit in a body is an error or complete and
// right, with each bit of each page: an agent sends a checksum. An item may have been delivered before
// it is verified, so the page is not requested again.
func TestPackedListCorrupt(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	var pages [2][]byte
	for i, next := range []string{"b", ""} {
		half := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"` + next + `"},"items":[`
		pages[i] = encoder.EncodeAll([]byte(half), nil)
		pages[i] = encoder.EncodeAll(fmt.Appendf(nil, `%s,%s]}`, packedPod(2*i), packedPod(2*i+1)), pages[i])
	}
	whole, damaged := 0, 0
	for page := range pages {
		for bit := range 8 * len(pages[page]) {
			synctest.Test(t, func(t *testing.T) {
				broken := bytes.Clone(pages[page])
				broken[bit/8] ^= 1 << (bit % 8)
				flipped := &flip{pages: pages, page: page, broken: broken}
				c, err := New(&rest.Config{Host: "http://server", Transport: flipped})
				require.NoError(t, err)
				got := 0
				_, err = c.Source(SourceOptions{Resource: pods}).List(t.Context(), ListOptions{PageSize: 2}, func(o *object.Object) error {
					if string(o.Raw()) != packedPod(got) {
						damaged++
					}
					got++
					return nil
				})
				if err == nil {
					whole++
					require.Equal(t, 4, got)
					require.Zero(t, damaged, "bit %d of page %d", bit, page)
				}
				damaged = 0
			})
		}
	}
	t.Logf("%d lists were right although a bit was flipped", whole)
}

func packedPod(i int) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p-%d","namespace":"n","labels":{"x":"%s"}}}`, i, strings.Repeat("yz", 20*(i+1)))
}

// flip is a server of pages, which are packed. The first answer for one of them is broken.
type flip struct {
	pages  [2][]byte
	page   int
	broken []byte
}

// RoundTrip implements [http.RoundTripper].
func (f *flip) RoundTrip(r *http.Request) (*http.Response, error) {
	page := 0
	if r.URL.Query().Has("continue") {
		page = 1
	}
	body := f.pages[page]
	if page == f.page && f.broken != nil {
		body, f.broken = f.broken, nil
	}
	header := http.Header{"Content-Type": []string{"application/json"}, "Content-Encoding": []string{"zstd"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(body))}, nil
}
