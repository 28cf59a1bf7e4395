package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPipelineCheck_Stuck(t *testing.T) {
	what := "changes of pods do not get into the store"
	r := Reporter{DB: memory.New(), Stalled: func() string { return what }}
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
