package kubeapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store/memory"
)

// TestProbesAreShared checks that callers which come while a probe is in flight get the next one's
// answer, which is one for all of them.
func TestProbesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p probes
		asked := 0
		ask := func(ctx context.Context) (string, error) {
			asked++
			rv := strconv.Itoa(asked)
			time.Sleep(time.Second)
			return rv, ctx.Err()
		}
		var wg sync.WaitGroup
		get := func(want string) {
			wg.Go(func() {
				rv, err := p.get(t.Context(), ask)
				require.NoError(t, err)
				require.Equal(t, want, rv)
			})
		}
		get("1")
		synctest.Wait()
		for range 100 {
			get("2")
		}
		wg.Wait()
		require.Equal(t, 2, asked)
		get("3")
		wg.Wait()
		synctest.Wait()
		require.False(t, p.running)
	})
}

// TestProbesOutliveOneCaller checks that a probe ends with its last caller, not with its first one.
func TestProbesOutliveOneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p probes
		ended := 0
		answer := make(chan string)
		ask := func(ctx context.Context) (string, error) {
			defer func() { ended++ }()
			select {
			case rv := <-answer:
				return rv, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		get := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := p.get(ctx, ask)
				done <- err
			}()
			synctest.Wait()
			return done
		}
		impatient, leave := context.WithCancel(t.Context())
		first := get(impatient)
		second, third := get(impatient), get(t.Context())
		leave()
		require.ErrorIs(t, <-first, context.Canceled)
		require.ErrorIs(t, <-second, context.Canceled)
		synctest.Wait()
		require.Equal(t, 1, ended, "no caller waits for the first probe")
		answer <- "7"
		require.NoError(t, <-third)

		impatient, leave = context.WithCancel(t.Context())
		first, second = get(t.Context()), get(impatient)
		leave()
		require.ErrorIs(t, <-second, context.Canceled)
		third = get(t.Context())
		answer <- "8"
		require.NoError(t, <-first)
		answer <- "9"
		require.NoError(t, <-third, "the next probe was not the one that all had left")

		require.ErrorIs(t, <-get(t.Context()), context.DeadlineExceeded, "a server that does not answer")
		synctest.Wait()
		require.False(t, p.running)
	})
}

// TestProbesAreFresh checks, with real concurrency, that no caller gets an answer from before its
// call.
func TestProbesAreFresh(t *testing.T) {
	var p probes
	var server, asked atomic.Int64
	ask := func(context.Context) (string, error) {
		asked.Add(1)
		if rv := server.Load(); rv%7 != 0 {
			return strconv.FormatInt(rv, 10), nil
		}
		return "", errors.New("refused")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				atLeast := server.Add(1)
				s, err := p.get(t.Context(), ask)
				if err != nil {
					continue
				}
				rv, err := strconv.ParseInt(s, 10, 64)
				require.NoError(t, err)
				require.GreaterOrEqual(t, rv, atLeast)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, asked.Load(), int64(16000))
}

// TestConsistentReadsShareProbes checks that requests which want the newest state do.
func TestConsistentReadsShareProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(t, memory.New(), 3, 10)
		asked := 0
		c.Probe = func(context.Context) (string, error) {
			asked++
			time.Sleep(time.Second)
			return "3", nil
		}
		s := c.server("")
		var wg sync.WaitGroup
		for range 20 {
			for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces/ns/configmaps/o000001"} {
				wg.Go(func() {
					w := httptest.NewRecorder()
					s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
					require.Equal(t, http.StatusOK, w.Code)
				})
			}
		}
		wg.Wait()
		require.Equal(t, 2, asked)
	})
}
