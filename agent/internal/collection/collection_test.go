package collection

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestScopeIsCanonical(t *testing.T) {
	info := func(label, field string) store.Info {
		spec := Spec{ID: "pods", Entry: config.Resource{LabelSelector: label, FieldSelector: field}}
		c := New(spec, Options{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
		i, err := c.info(upstream.Resource{})
		require.NoError(t, err)
		return i
	}
	require.Equal(t, info("a=b,c in (d,e)", "x=y,z=w"), info("c in (e, d), a = b", "x==y,z=w"))
	require.NotEqual(t, info("a=b", ""), info("a=c", ""))
}

func TestAppliedWakesWaiters(t *testing.T) {
	track := NewTracker(clock.RealClock{})
	commit := func() { require.NoError(t, track.Commit(store.Changeset{}, func() error { return nil })) }
	commit() // no one waits
	first, same := track.NextChange(), track.NextChange()
	commit()
	woken := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	require.True(t, woken(first))
	require.True(t, woken(same))
	require.False(t, woken(track.NextChange()), "nothing changed since")
}
