package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// logAt logs a line at a time, n times.
func logAt(log *slog.Logger, when time.Time, n int, level slog.Level, message string, args ...any) {
	for range n {
		r := slog.NewRecord(when, level, message, 0)
		r.Add(args...)
		_ = log.Handler().Handle(nil, r) //nolint:staticcheck // no context is looked at
	}
}

func TestRateLimit(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(RateLimit(slog.NewTextHandler(&out, nil)))
	lines := func() []string {
		all := strings.Split(strings.TrimSpace(out.String()), "\n")
		out.Reset()
		return all
	}
	now := time.Unix(1_000_000, 0)
	logAt(log, now, 25, slog.LevelInfo, "waiting", "error", "EOF")
	require.Len(t, lines(), sameLines)

	logAt(log, now, 1, slog.LevelWarn, "waiting")
	logAt(log.With("collection", "pods"), now, 1, slog.LevelInfo, "waiting")
	logAt(log.WithGroup("g"), now, 1, slog.LevelInfo, "waiting")
	logAt(log, now, 1, slog.LevelInfo, "something else")
	require.Len(t, lines(), 4, "of another level, collection, group or message")

	logAt(log, now.Add(sameLineEvery), 3, slog.LevelInfo, "waiting", "error", "timeout")
	got := lines()
	require.Len(t, got, 1)
	require.Contains(t, got[0], "error=timeout suppressed=15")
	logAt(log, now.Add(2*sameLineEvery), 1, slog.LevelInfo, "waiting")
	require.Contains(t, lines()[0], "suppressed=2")
	logAt(log, now.Add(time.Hour), 1, slog.LevelInfo, "waiting")
	require.NotContains(t, lines()[0], "suppressed")

	pods := log.With("collection", "pods")
	logAt(pods, now.Add(time.Hour), sameLines, slog.LevelInfo, "x")
	out.Reset()
	logAt(log.With("collection", "pods"), now.Add(time.Hour), 1, slog.LevelInfo, "x")
	require.Empty(t, out.String(), "made in another way, and the same")
	logAt(log.With("collection", "nodes"), now.Add(time.Hour), 1, slog.LevelInfo, "x")
	require.Len(t, lines(), 1)
}

// What is remembered does not grow with what is logged.
func TestRateLimitMemoryIsBounded(t *testing.T) {
	l := &lines{kinds: map[kind]*repeated{}}
	for i := range 3 * lineKinds {
		pass, _ := l.pass(kind{message: strings.Repeat("x", i)}, time.Unix(0, 0))
		require.True(t, pass)
	}
	require.LessOrEqual(t, len(l.kinds), lineKinds)
}
