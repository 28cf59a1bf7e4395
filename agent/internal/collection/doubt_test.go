package collection

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/upstream"
)

// followed is a collection that follows a box.
type followed struct {
	*Collection
	*box
	t *testing.T
}

// follow runs story in a bubble with a collection that is caught up.
func follow(t *testing.T, story func(f followed)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox()
		cluster, err := upstream.New(&rest.Config{Host: "http://server", Transport: b})
		require.NoError(t, err)
		c := New(Spec{ID: "pods", Entry: config.Resource{Resource: config.ResourceName{Resource: "pods"}}}, Options{
			DB: memory.New(), Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
		require.NoError(t, c.Open(upstream.Resource{GVR: pods, Kind: "Pod", Namespaced: true}))
		ctx, cancel := context.WithCancel(t.Context())
		group, running := errgroup.WithContext(ctx)
		(&Supervisors{Cluster: cluster, Group: group, Running: running}).Start(c)
		f := followed{c, b, t}
		f.after(time.Second)
		f.requireFresh()
		story(f)
		cancel()
		require.ErrorIs(t, group.Wait(), context.Canceled)
	})
}

func (f followed) after(d time.Duration) { time.Sleep(d); synctest.Wait() }

func (f followed) requireFresh() {
	f.t.Helper()
	require.True(f.t, f.Connected(), "%v", f.Tracker.Stats().Problem)
	require.True(f.t, f.Tracker.Stats().CaughtUp(true, false))
	require.NoError(f.t, f.Tracker.Stats().Problem)
}

// requireOld checks that the collection is not fresh, and was complete at a time.
func (f followed) requireOld(at time.Time) {
	f.t.Helper()
	require.False(f.t, f.Connected())
	now := f.Served().Freshness()
	require.False(f.t, now.Connected)
	require.WithinDuration(f.t, at, now.Since, time.Second, "the last proof")
	stats := f.Tracker.Stats()
	require.False(f.t, stats.CaughtUp(true, false))
	require.Error(f.t, stats.Problem)
	told, _ := stats.LastProven(time.Now(), time.Time{})
	require.WithinDuration(f.t, at, told, time.Second)
}

// read is a consistent read of a client, which asks the server for its newest resourceVersion.
func (f followed) read() { _, _ = f.Served().Probe(f.t.Context()) }

func (f followed) objects() int64 { return f.stored.State().Count }

func (f followed) begun() (watches int) {
	f.set(func(b *box) { watches = b.watches })
	return watches
}

// TestDoubt_BusyCluster: the resourceVersions of other resources go on all the time, and clients read. The
// watch is behind them between two bookmarks, and is never in doubt for that.
func TestDoubt_BusyCluster(t *testing.T) {
	follow(t, func(f followed) {
		for range 200 {
			f.change(false)
			f.read()
			f.after(time.Second)
			f.requireFresh()
		}
		before := f.begun()
		for range 2000 { // no client reads
			f.change(false)
			f.after(time.Second)
			f.requireFresh()
		}
		require.LessOrEqual(t, f.begun()-before, 7, "one watch follows the other, and bookmarks are enough")
	})
}

// TestDoubt_QuietCluster: nothing changes for hours.
func TestDoubt_QuietCluster(t *testing.T) {
	follow(t, func(f followed) {
		for range 24 {
			f.after(5 * time.Minute)
			f.requireFresh()
		}
	})
}

// TestDoubt_HeldWatch: a proxy holds the open watch and lets others pass. Within seconds of a client's
// read the state is not fresh, and another watch delivers the change.
func TestDoubt_HeldWatch(t *testing.T) {
	follow(t, func(f followed) {
		proven := time.Now().Add(-time.Second)
		f.after(5 * time.Second)
		f.set(func(b *box) { b.held = func(n int, timeout time.Duration) bool { return n == 1 } })
		f.change(true)
		f.read()
		f.requireFresh() // a change takes a moment
		time.Sleep(aheadPatience)
		f.requireOld(proven)
		f.after(3 * time.Second)
		require.EqualValues(t, 2, f.objects())
		f.requireFresh()
	})
}

// aheadPatience is more than the time in which a watch is found to lag.
const aheadPatience = 2100 * time.Millisecond

// TestDoubt_AllHeld: a proxy answers every watch with headers alone. Nothing is fresh until it lets one
// pass, however many watches begin.
func TestDoubt_AllHeld(t *testing.T) {
	follow(t, func(f followed) {
		proven := time.Now().Add(-time.Second)
		f.set(func(b *box) { b.held = func(int, time.Duration) bool { return true } })
		f.change(true)
		f.read()
		for range 40 {
			f.after(time.Minute)
			f.requireOld(proven)
		}
		require.EqualValues(t, 1, f.objects())
		require.Less(t, f.begun(), 40*7, "a watch each ten seconds or less asks whether it is still so")
		f.set(func(b *box) { b.held = func(int, time.Duration) bool { return false } })
		f.after(30 * time.Second) // a pause between two checks, a check, and the reflector's wait for a retry
		require.EqualValues(t, 2, f.objects())
		f.requireFresh()
	})
}

// TestDoubt_HeldUnread: nobody reads, and the held watch has no bookmark.
func TestDoubt_HeldUnread(t *testing.T) {
	for _, all := range []bool{false, true} {
		follow(t, func(f followed) {
			proven := time.Now().Add(-time.Second)
			f.set(func(b *box) { b.held = func(n int, timeout time.Duration) bool { return all || n == 1 } })
			f.change(true)
			f.after(88 * time.Second)
			f.requireFresh() // within its limits
			if all {
				f.after(10 * time.Second)
				f.requireOld(proven)
				return
			}
			f.after(10 * time.Second)
			require.EqualValues(t, 2, f.objects())
			f.requireFresh()
		})
	}
}

// TestDoubt_Delayed: what watches deliver is late by seconds. The changes arrive all the same.
func TestDoubt_Delayed(t *testing.T) {
	follow(t, func(f followed) {
		f.set(func(b *box) { b.delay = 10 * time.Second })
		f.change(true)
		f.read()
		f.after(8 * time.Second)
		require.False(t, f.Connected())
		f.after(10 * time.Second)
		require.EqualValues(t, 2, f.objects())
		f.requireFresh()
	})
}

// TestDoubt_ServerFails: the watch is open and silent, and lists fail, as while the conversion webhook of
// a custom resource is gone.
func TestDoubt_ServerFails(t *testing.T) {
	for _, reads := range []bool{true, false} {
		follow(t, func(f followed) {
			proven := time.Now().Add(-time.Second)
			f.set(func(b *box) {
				b.refuse, b.held = http.StatusInternalServerError, func(int, time.Duration) bool { return true }
			})
			f.change(true)
			if reads {
				f.read()
				f.requireOld(proven) // at once
				require.Equal(t, upstream.Server, upstream.Classify(f.Tracker.Stats().Problem))
			}
			f.after(2 * time.Minute)
			f.requireOld(proven)
			f.set(func(b *box) { b.refuse, b.held = 0, func(int, time.Duration) bool { return false } })
			f.after(20 * time.Second)
			require.EqualValues(t, 2, f.objects())
			f.requireFresh()
		})
	}
}

// TestDoubt_CallerGone: a client that does not wait for the probe shows nothing about the watch.
func TestDoubt_CallerGone(t *testing.T) {
	follow(t, func(f followed) {
		ctx, cancel := context.WithCancelCause(f.t.Context())
		cancel(errors.New("gone"))
		_, err := f.Served().Probe(ctx)
		require.Error(t, err)
		f.requireFresh()
	})
}
