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
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

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
	for name, serve := range protocols {
		t.Run(name, func(t *testing.T) {
			next = make(chan string)
			sent.Store(0)
			s := serve(t, handler).Source(SourceOptions{Resource: pods})
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

// TestPackedCut checks that a packed watch whose connection breaks in the middle ends as any other.
func TestPackedCut(t *testing.T) {
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
