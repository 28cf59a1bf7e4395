package collection

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
)

// TestUntrustedUntilReplaced checks that what is stored is untrusted from the moment that a guard
// refuses it until a list has replaced it: not when the list is complete, but when the store has it.
func TestUntrustedUntilReplaced(t *testing.T) {
	for _, reason := range []store.Reason{store.ReasonRVAhead, store.ReasonClusterChanged} {
		c := New(Spec{ID: "pods"}, Options{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
		queue := deltafifo.New(deltafifo.Options{})
		c.pipeline = &pipeline.Pipeline{Queue: queue}
		untrusted := func() store.Reason { return c.Tracker.Stats().Untrusted(c.ListPending()) }
		c.Tracker.Refused(store.ReasonExpired, errors.New("410"))
		require.Empty(t, untrusted(), "an expired checkpoint makes the content old, not untrusted")

		c.Tracker.Refused(reason, errors.New("another history"))
		require.Equal(t, reason, untrusted())
		require.NoError(t, queue.BeginReplace(t.Context(), deltafifo.Replace{}))
		require.NoError(t, queue.EndReplace("10"))
		c.Tracker.Listed(reason, "10", 0, 0)
		require.Equal(t, reason, untrusted(), "the list is complete, and not in the store")
		_, err := queue.PopBatch(t.Context())
		require.NoError(t, err)
		require.Equal(t, reason, untrusted(), "the list is on its way into the store")
		queue.Close()
		_, err = queue.PopBatch(t.Context())
		require.ErrorIs(t, err, deltafifo.ErrClosed)
		require.Empty(t, untrusted())
	}
}
