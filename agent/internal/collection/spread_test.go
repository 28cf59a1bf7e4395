package collection

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// A collection with readers waits no longer than a moment before a list after a 410.
func TestSpread(t *testing.T) {
	c := New(Spec{ID: "pods"}, Options{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	const second = time.Second
	for jitter, want := range map[time.Duration]time.Duration{0: 0, second: 15 * second, 2 * second: 30 * second, 60 * second: 60 * second} {
		require.Equal(t, want, c.spread(jitter)())
	}
	spread := c.spread(2 * second)
	c.Tracker.NextChange() // a follower of the local API
	require.Equal(t, 2*second, c.spread(time.Minute)())
	require.Zero(t, c.spread(0)())
	require.Equal(t, 2*second, spread())
	c.Tracker.Wake()
	require.Equal(t, 30*second, spread())
}

// While the list waits, no reader is told that the collection is connected, although its watch has only
// just ended.
func TestSpreadIsNotFresh(t *testing.T) {
	c := New(Spec{ID: "pods"}, Options{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	c.pipeline = &pipeline.Pipeline{Queue: deltafifo.New(deltafifo.Options{})}
	stored, err := memory.New().Open(store.Info{ID: "pods"})
	require.NoError(t, err)
	c.Tracker.Phase(reflector.PhaseWatching, nil)
	c.Tracker.Phase(reflector.PhaseResuming, nil)
	require.True(t, c.freshness(stored).Connected, "one watch follows the other")
	c.Tracker.Phase(reflector.PhaseWaiting, apierrors.NewResourceExpired("too old"))
	require.False(t, c.freshness(stored).Connected)
	require.Equal(t, "the server does not have the cache's state any more", c.fault())
}
