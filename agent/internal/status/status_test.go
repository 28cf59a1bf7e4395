package status

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/internal/clocks/clockstest"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPipelineCheck_Stuck(t *testing.T) {
	what := "changes of pods do not get into the store"
	r := New(Options{DB: memory.New(), Stalled: func() string { return what }})
	require.Equal(t, check{"pipeline", "failed: " + what, true}, r.live()[1])
}

func TestFreshness(t *testing.T) {
	for _, test := range []struct {
		want  string
		s     localapi.Collection
		limit time.Duration
	}{
		{"failed: never synced", localapi.Collection{CaughtUp: true}, 0},
		{"ok: caught up, 5 objects", localapi.Collection{Synced: true, CaughtUp: true, Objects: 5}, time.Second},
		{"ok: 1m0s old, 0 objects", localapi.Collection{Synced: true, AgeSeconds: 60}, time.Minute},
		{"failed: 1m1s old, more than health.maxStaleness (1m0s)", localapi.Collection{Synced: true, AgeSeconds: 61}, time.Minute},
		{"failed: of unknown age, which is not within health.maxStaleness (1m0s)", localapi.Collection{Synced: true, Checkpoint: localapi.Checkpoint{AgeUnknown: true}}, time.Minute},
		{"ok: of unknown age, 0 objects", localapi.Collection{Synced: true, Checkpoint: localapi.Checkpoint{AgeUnknown: true}}, 0},
		{"ok: 2h0m old, 0 objects", localapi.Collection{Synced: true, AgeSeconds: 7200}, 0},
	} {
		got := freshness("pods", test.s, test.limit)
		require.Equal(t, test.want, got.is)
		require.Equal(t, test.want[:2] != "ok", got.bad)
	}
}

// TestFreshness_WrongClock: a health check with a limit does not pass because the clock is wrong, and after a watch
// setting the clock changes nothing.
func TestFreshness_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, off := range []time.Duration{0, -2 * time.Hour, -26 * year, 2 * time.Hour, 14 * year} {
		clk := &clockstest.Moved{Off: off}
		c := collection.New(collection.Spec{ID: "pods"}, collection.Options{Clock: clk, Log: slog.New(slog.DiscardHandler)})
		r := New(Options{Clock: clk, Corrupt: func(string) (int64, int64) { return 0, 0 }})
		proven := time.Now().Add(-time.Minute).UTC()
		failed := func() bool {
			s := localapi.Collection{Synced: true}
			s.Proven = proven
			r.fillCollection(&s, c, c.Tracker.Stats())
			return freshness("pods", s, time.Hour).bad
		}
		require.Equal(t, off != 0, failed(), "clock moved by %s", off)
		c.Tracker.Phase(reflector.PhaseWatching, nil)
		require.False(t, failed())
		c.Tracker.Phase(reflector.PhaseWaiting, nil)
		for _, set := range []time.Duration{off, off + year, off - year, 0} {
			clk.Off = set
			require.False(t, failed(), "its watch has just ended; the clock was set by %s", set-off)
		}
	}
}
