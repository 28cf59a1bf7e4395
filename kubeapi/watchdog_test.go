package kubeapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lazyClient is a client that takes its time for each write, on a connection with write deadlines.
type lazyClient struct {
	*answer
	takes    time.Duration
	deadline time.Time
	past     chan struct{} // closed once the deadline was set to the past
	cut      bool          // past is closed
	over     bool          // the answer has ended
	late     int           // deadlines after that
}

func (c *lazyClient) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		c.late++ // net/http would panic
	}
	if c.deadline = at; !at.IsZero() && at.Before(time.Now()) && !c.cut {
		c.cut = true
		close(c.past)
	}
	return nil
}

func (c *lazyClient) Write(p []byte) (int, error) {
	select {
	case <-time.After(c.takes):
		return c.answer.Write(p)
	case <-c.past:
		return 0, os.ErrDeadlineExceeded
	}
}

// serve opens a watch, and returns a channel that is closed when it ends.
func (c *lazyClient) serve(ctx context.Context, s *Server) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.over = true
		}()
		s.ServeHTTP(c, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?watch=1&resourceVersion=12", nil))
	}()
	return done
}

// TestWatchdog checks that each write to a client has the whole limit, also of a frame that is larger
// than the buffer, that there is none between writes, and that a write beyond it ends.
func TestWatchdog(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &lazyClient{answer: &answer{ctx: ctx, header: http.Header{}}, past: make(chan struct{}), deadline: time.Now().Add(time.Minute)}
		done := c.serve(ctx, w.server)
		synctest.Wait()
		require.Zero(t, c.deadline, "the server's deadline for whole answers is removed")

		time.Sleep(10 * time.Minute)
		c.takes = writeLimit - time.Second
		for _, size := range []int{1, 10 << 10, 2 * writeBufferBytes, 1} {
			before := strings.Count(c.buf.String(), "\n")
			w.change("a/x", "web", strings.Repeat("n", size))
			time.Sleep(c.takes)
			if size > writeBufferBytes { // what is before the object, the object, and the rest
				time.Sleep(2 * c.takes)
			}
			synctest.Wait()
			require.Equal(t, before+1, strings.Count(c.buf.String(), "\n"))
			require.Zero(t, c.deadline)
		}

		c.takes = time.Hour
		w.change("a/x", "web", "stuck")
		began := time.Now()
		<-done
		require.Equal(t, writeLimit, time.Since(began))
		require.Equal(t, time.Now().Add(writeLimit), c.deadline, "for what the server still has to write")
		time.Sleep(time.Hour)
		require.Zero(t, c.late)
	})
}

// TestWatchdogFiresLate checks that a timer that fires when its write ends cuts neither the next write nor
// an answer that has ended.
func TestWatchdogFiresLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &lazyClient{answer: &answer{ctx: t.Context(), header: http.Header{}}, past: make(chan struct{})}
		d := newWatchdog(c)
		for _, takes := range []time.Duration{writeLimit - 1, 0, 1, writeLimit - 1} {
			require.NoError(t, d.watch(func() error {
				d.cut()
				time.Sleep(takes)
				return nil
			}))
		}
		c.over = true
		time.Sleep(time.Hour)
		d.cut()
		require.Zero(t, c.late)
		require.Zero(t, c.deadline)
		synctest.Wait()
	})
}
