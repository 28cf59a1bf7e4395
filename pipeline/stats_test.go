package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// TestStats_CaughtUp checks that a collection is caught up only while its watch is open, and once the
// list before the watch is in the store.
func TestStats_CaughtUp(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	s := NewStats(clock)
	for _, tc := range []struct {
		name                string
		phase               reflector.Phase
		synced, listPending bool
		want                bool
	}{
		{"not watching", reflector.PhaseResuming, true, false, false},
		{"never synced", reflector.PhaseWatching, false, false, false},
		{"the list is not stored yet", reflector.PhaseWatching, true, true, false},
		{"caught up", reflector.PhaseWatching, true, false, true},
	} {
		s.Phase(tc.phase, nil)
		require.Equal(t, tc.want, s.Counters().CaughtUp(tc.synced, tc.listPending), tc.name)
	}
	clock.Step(time.Hour)
	s.Event(watch.Bookmark, "7")
	ended := clock.Now()
	clock.Step(time.Minute)
	s.Phase(reflector.PhaseWaiting, errors.New("down"))
	clock.Step(time.Hour)
	c := s.Counters()
	for _, stored := range []time.Time{ended.Add(-time.Minute), ended.Add(26 * 365 * 24 * time.Hour)} {
		at, atLeast := c.LastProven(clock.Now(), stored)
		require.Equal(t, ended, at, "complete at the last sign of life of its watch, whatever was stored by another clock")
		require.Equal(t, time.Hour+time.Minute, atLeast)
	}
	began := clock.Now()
	clock.Step(time.Second)
	require.NoError(t, s.Commit(store.Changeset{Began: began}, func() error { return nil }))
	at, _ := s.LastProven(clock.Now(), ended)
	require.Equal(t, began, at, "a later event proves more")
	require.EqualError(t, c.Problem, "down")

	s.Phase(reflector.PhaseWaiting, fmt.Errorf("list: %w", &reflector.MassDeleteError{Stored: 200, Deletions: 120}))
	require.EqualValues(t, 120, s.Counters().HeldBack)
}
