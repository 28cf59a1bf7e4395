package reflector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// The list after a 410 waits for a random time within the bound, and for no reader.
func TestSpread(t *testing.T) {
	gone := apierrors.NewResourceExpired("too old")
	synctest.Test(t, func(t *testing.T) {
		// wait returns how long the first list waits, in the run of another node.
		wait := func(spread func(began time.Time) time.Duration, reason store.Reason) time.Duration {
			s, listed := &script{watches: []answer{{err: gone}}}, time.Duration(-1)
			if reason != "" {
				s.watches = nil
			}
			began := time.Now()
			s.noted = func(n int) {
				if listed < 0 && has(s.log[n-1:], "list") > 0 {
					listed = time.Since(began)
				}
			}
			s.play(t, time.Hour, func(o *reflector.Options) {
				o.Reason = reason
				o.Spread = func() time.Duration { return spread(began) }
			})
			return listed
		}
		const bound = 30 * time.Second
		longest, shortest := time.Duration(0), bound
		for range 100 {
			d := wait(func(time.Time) time.Duration { return bound }, "")
			require.GreaterOrEqual(t, d, time.Duration(0))
			require.LessOrEqual(t, d, bound)
			longest, shortest = max(longest, d), min(shortest, d)
			require.LessOrEqual(t, wait(func(began time.Time) time.Duration {
				if time.Since(began) >= 3*time.Second {
					return 0 // a reader comes
				}
				return bound
			}, ""), 4*time.Second)
		}
		require.Greater(t, longest, 25*time.Second)
		require.Less(t, shortest, 5*time.Second)
		require.Zero(t, wait(func(time.Time) time.Duration { return 0 }, ""))
		require.Zero(t, wait(func(time.Time) time.Duration { return bound }, store.ReasonRequested), "only a restart comes to all nodes")
	})
}

// While it waits, the collection does not follow the server, and the reason is known.
func TestSpreadIsReported(t *testing.T) {
	seen := &observedErrors{}
	play(t, &script{watches: []answer{{err: apierrors.NewResourceExpired("too old")}}}, 2*time.Minute, func(o *reflector.Options) {
		o.Observer, o.Spread = seen, func() time.Duration { return time.Minute }
	})
	require.Len(t, seen.all, 2, "the 410, and the wait")
	require.True(t, apierrors.IsResourceExpired(seen.all[1]), "%v", seen.all[1])
}
