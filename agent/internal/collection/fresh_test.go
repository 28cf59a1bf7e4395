package collection

import (
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/internal/clocks/clockstest"
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/upstream"
)

// TestFreshness_WrongClock: without the server nothing is fresh because the clock is wrong, neither after a start
// nor when it is set while the agent runs.
func TestFreshness_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, off := range map[string]time.Duration{
		"right": 0, "two hours behind": -2 * time.Hour, "26 years behind": -26 * year,
		"two hours ahead": 2 * time.Hour, "14 years ahead": 14 * year,
	} {
		t.Run(name, func(t *testing.T) {
			clk := &clockstest.Moved{Off: off}
			c := New(Spec{ID: "pods"}, Options{Clock: clk, Log: slog.New(slog.DiscardHandler)})
			c.pipeline = &pipeline.Pipeline{Queue: deltafifo.New(deltafifo.Options{})}
			stored, err := memory.New().Open(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod"})
			require.NoError(t, err)
			r, err := stored.Replace()
			require.NoError(t, err)
			require.NoError(t, r.Commit(store.Checkpoint{RV: "1", LastList: time.Now().Add(-time.Minute).UTC()}))
			is := func() kubeapi.Freshness { return c.freshness(stored) }

			f := is()
			require.False(t, f.Connected, "an agent that has not reached the server")
			require.Equal(t, off >= 0, f.Age(clk.Now()).Known())
			require.False(t, f.Age(clk.Now()).AtMost(50*time.Second))

			c.Tracker.Phase(reflector.PhaseWatching, nil)
			require.True(t, is().Connected)
			c.Tracker.Phase(reflector.PhaseWaiting, nil)
			for _, set := range []time.Duration{off, off + year, off - year, off - 2*time.Hour, 0} {
				clk.Off = set
				f := is()
				require.True(t, f.Connected, "its watch has just ended; the clock was set by %s", set-off)
				require.True(t, f.Age(clk.Now()).AtMost(connectedFor))
			}
		})
	}
}

// TestFault: readers get the reason why the collection does not follow the server, which may answer.
func TestFault(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(`User "edge" can't list`))
	for _, x := range []struct {
		name   string
		notify func(*Tracker)
		fault  string
	}{
		{"never connected", func(*Tracker) {}, "the server can't be reached"},
		{"away", func(k *Tracker) { k.Phase(reflector.PhaseWaiting, syscall.ECONNREFUSED) }, "the server can't be reached"},
		{"no definition", func(k *Tracker) { k.Phase(reflector.PhaseWaiting, &upstream.NoResourceError{}) }, "the server does not have this resource"},
		{"no right", func(k *Tracker) { k.Phase(reflector.PhaseWaiting, forbidden) }, "the server does not allow the cache to read this"},
		{"restored", func(k *Tracker) {
			k.Phase(reflector.PhaseWaiting, syscall.ECONNREFUSED)
			k.Refused(store.ReasonRVAhead, errors.New("x"))
			k.Phase(reflector.PhaseListing, nil)
		}, "the server has another state, which is not read yet (rv-ahead)"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := New(Spec{ID: "pods"}, Options{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
			c.pipeline = &pipeline.Pipeline{Queue: deltafifo.New(deltafifo.Options{})}
			x.notify(c.Tracker)
			require.Equal(t, x.fault, c.fault())
		})
	}
}
