package upstream

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// probed is a link whose probes are answered, or not.
type probed struct {
	*Link
	answers atomic.Bool
	probes  atomic.Int64
	lines   bytes.Buffer
}

func newProbed(answers bool) *probed {
	l := &probed{Link: newLink(clock.RealClock{})}
	l.answers.Store(answers)
	l.log = slog.New(slog.NewTextHandler(&l.lines, nil))
	l.probe = func(ctx context.Context) error {
		l.probes.Add(1)
		if l.answers.Load() {
			l.hear()
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	return l
}

// sleepFor sleeps in the bubble, and lets all goroutines of the link come to rest.
func sleepFor(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestLinkSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProbed(false)
		defer l.close()
		read, readEnds := l.Await(t.Context(), 0)
		write, writeEnds := l.Await(t.Context(), 10*time.Second)
		sleepFor(lateAfter - time.Millisecond)
		require.Zero(t, l.probes.Load(), "not every answer is late")
		sleepFor(linkInterval)
		require.EqualValues(t, 1, l.probes.Load())
		require.True(t, l.Good())
		require.Zero(t, l.Silent())
		sleepFor(time.Second)
		require.False(t, l.Good())
		require.ErrorIs(t, context.Cause(read), ErrLink)
		require.NoError(t, write.Err())
		next, nextEnds := l.Await(t.Context(), 0)
		require.ErrorIs(t, context.Cause(next), ErrLink, "no one else waits")
		require.Less(t, l.Silent(), time.Second)
		sleepFor(10 * time.Second)
		require.InDelta(t, 10*time.Second, l.Silent(), float64(time.Second))
		require.ErrorIs(t, context.Cause(write), ErrLink)
		for _, ends := range []func(error){readEnds, writeEnds, nextEnds} {
			ends(context.Canceled)
		}

		before := l.probes.Load()
		sleepFor(10 * time.Minute)
		require.InDelta(t, 10*time.Minute/maxProbeInterval, l.probes.Load()-before, 6, "an outage of hours costs little")
		l.answers.Store(true)
		sleepFor(maxProbeInterval + probeTimeout)
		require.True(t, l.Good())
		require.Zero(t, l.Silent())
		require.Equal(t, 1, strings.Count(l.lines.String(), "may not be reached"))
		require.Equal(t, 1, strings.Count(l.lines.String(), "answers again"))

		before = l.probes.Load()
		sleepFor(10 * time.Minute)
		require.Equal(t, before, l.probes.Load(), "nothing is waited for")
	})
}

// TestLinkSlowAnswer: an answer that takes its time, as of a webhook that judges tokens, is waited for while the server
// answers others.
func TestLinkSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProbed(true)
		defer l.close()
		ctx, answered := l.Await(t.Context(), 0)
		sleepFor(9 * time.Second)
		require.NoError(t, ctx.Err())
		require.True(t, l.Good())
		require.Positive(t, l.probes.Load())
		answered(nil)

		// Nor does one that the server works at for the first time after long silence.
		sleepFor(time.Hour)
		ctx, answered = l.Await(t.Context(), 0)
		sleepFor(lateAfter / 2)
		require.NoError(t, ctx.Err())
		require.True(t, l.Good())
		answered(nil)
		require.Empty(t, l.lines.String())
	})
}

// TestLinkBusy: while parts of other answers come over a thin link, the wait is not over.
func TestLinkBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProbed(false)
		defer l.close()
		ctx, _ := l.Await(t.Context(), 0)
		for range 30 {
			sleepFor(time.Second)
			l.hear()
		}
		require.NoError(t, ctx.Err())
		require.True(t, l.Good())
	})
}

// TestLinkErrors: an error of the network puts the link in doubt at once, an answer of the server or the end of the
// caller does not.
func TestLinkErrors(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, tc := range []struct {
		name string
		ctx  context.Context
		err  error
		good bool
	}{
		{"refused", t.Context(), refused, false},
		{"caller gone", gone, refused, true},
		{"API error", t.Context(), apierrors.NewForbidden(schema.GroupResource{}, "", nil), true},
		{"canceled", t.Context(), context.Canceled, true},
		{"other", t.Context(), errors.New("no review"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newProbed(false)
				defer l.close()
				_, answered := l.Await(tc.ctx, 0)
				answered(tc.err)
				require.Equal(t, tc.good, l.Good())
			})
		})
	}
}

// TestLinkLost: connections are closed once for each doubt that lasts.
func TestLinkLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProbed(false)
		defer l.close()
		var lost, back atomic.Int64
		l.lost, l.back = func() { lost.Add(1) }, func() { back.Add(1) }
		_, ends := l.Await(t.Context(), 0)
		sleepFor(silentAfter + 4*time.Second)
		require.Zero(t, lost.Load())
		l.hear() // a packet that was late
		sleepFor(4 * time.Second)
		require.Zero(t, lost.Load())
		require.Zero(t, back.Load())
		sleepFor(time.Minute)
		require.EqualValues(t, 1, lost.Load())
		l.hear()
		require.EqualValues(t, 1, back.Load())
		sleepFor(time.Minute)
		require.EqualValues(t, 2, lost.Load())
		ends(context.Canceled)
	})
}

// TestLinkFirstAnswer: only the first end of a wait counts, as the answer that refuses a request is none of the server.
func TestLinkFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProbed(false)
		defer l.close()
		_, ends := l.Await(t.Context(), 0)
		sleepFor(2 * time.Second)
		require.False(t, l.Good())
		ends(ErrLink)
		ends(nil)
		require.False(t, l.Good())
	})
}

// TestLinkClosed: nothing is probed after the end.
func TestLinkClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProbed(false)
		l.Await(t.Context(), 0)
		sleepFor(5 * time.Second)
		l.close()
		before := l.probes.Load()
		sleepFor(time.Hour)
		require.Equal(t, before, l.probes.Load())
	})
}
