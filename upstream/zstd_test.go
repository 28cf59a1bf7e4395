package upstream

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
)

// TestZstd checks that a list and a watch are read that an agent has packed, each event once it comes,
// and that received bytes are counted as they came.
func TestZstd(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	next := make(chan string)
	var sent atomic.Int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		require.Contains(t, r.Header.Get("Accept-Encoding"), "zstd")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "zstd")
		write := func(s string) {
			n, err := w.Write(encoder.EncodeAll([]byte(s), nil))
			require.NoError(t, err)
			sent.Add(int64(n))
			require.NoError(t, http.NewResponseController(w).Flush())
		}
		if r.URL.Query().Get("watch") == "" {
			write(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[`)
			write(`{"metadata":{"name":"a","namespace":"n","labels":{"x":"` + strings.Repeat("y", 10_000) + `"}}}]}`)
			return
		}
		w.WriteHeader(http.StatusOK)
		require.NoError(t, http.NewResponseController(w).Flush())
		for e := range next {
			write(e)
		}
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
			require.Less(t, sent.Load(), int64(2000))
		})
	}
}

// TestZstdCut checks that a packed watch whose connection breaks within a frame ends as any other.
func TestZstdCut(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	whole := encoder.EncodeAll([]byte(event("ADDED", smallPod)+"\n"), nil)
	for name, body := range map[string][]byte{
		"within a frame": append(append([]byte(nil), whole...), whole[:len(whole)/2]...),
		"garbage":        append(append([]byte(nil), whole...), "not a frame of zstd"...),
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Encoding", "zstd")
				_, _ = w.Write(body)
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
