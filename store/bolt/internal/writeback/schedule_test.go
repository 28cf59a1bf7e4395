package writeback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestSchedule_Due(t *testing.T) {
	const interval = 5 * time.Second
	for _, c := range []struct {
		name     string
		interval time.Duration
		bytes    int
		changes  bool
		wait     time.Duration
	}{
		{"a checkpoint waits twelve intervals", interval, 100, false, time.Minute},
		{"a large checkpoint too", interval, minBatchBytes, false, time.Minute},
		{"few changes wait twelve intervals", 2 * time.Second, 100, true, 24 * time.Second},
		{"but no more than a minute", 10 * time.Second, 100, true, time.Minute},
		{"unless the interval is longer", time.Hour, 100, true, time.Hour},
		{"a batch of changes waits one interval", interval, minBatchBytes, true, interval},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := schedule{interval: c.interval}
			_, ok := s.due()
			require.False(t, ok, "nothing is dirty")
			s.add(start, c.bytes, c.changes)
			at, ok := s.due()
			require.True(t, ok)
			require.Equal(t, c.wait, at.Sub(start))
			s.flushed()
			_, ok = s.due()
			require.False(t, ok, "flushed")
		})
	}
}

// The time runs from the oldest change. A checkpoint that waits is part of the first batch of
// changes, and does not hurry it.
func TestSchedule_Due_CountsFromTheOldestChange(t *testing.T) {
	s := schedule{interval: time.Second}
	s.add(start, 10, false)
	changed := start.Add(3 * time.Second)
	s.add(changed, 10, true)
	s.add(changed.Add(time.Second), 10, true)
	at, _ := s.due()
	require.Equal(t, changed.Add(12*time.Second), at)
	s.add(changed.Add(2*time.Second), minBatchBytes, false)
	at, _ = s.due()
	require.Equal(t, changed.Add(time.Second), at, "enough for a batch")
}

// A flush that fails is tried again after 1 s, 2 s, 4 s, … up to a minute, whatever is put
// meanwhile; one that succeeds ends that.
func TestSchedule_Failed_BacksOff(t *testing.T) {
	s := schedule{interval: time.Millisecond}
	s.add(start, minBatchBytes, true)
	now := start
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		s.failed(now)
		s.add(now, 1, true)
		at, ok := s.due()
		require.True(t, ok)
		require.Equal(t, wait*time.Second, at.Sub(now))
		now = at
	}
	s.flushed()
	s.succeeded()
	_, ok := s.due()
	require.False(t, ok)
	s.add(now, 1, true)
	s.failed(now)
	at, _ := s.due()
	require.Equal(t, firstRetry, at.Sub(now), "the next failure starts over")
}

func TestSchedule_Pressure(t *testing.T) {
	later := start.Add(time.Second)
	for _, c := range []struct {
		name        string
		bytes       int
		failed      bool
		now         time.Time
		full, flush bool
	}{
		{"little", flushBytes - 1, false, start, false, false},
		{"a flush's worth", flushBytes, false, start, false, true},
		{"a flush's worth after a failure", flushBytes, true, later, false, false},
		{"too much", maxUnflushedBytes, false, start, true, true},
		{"too much, right after a failure", maxUnflushedBytes, true, start, true, false},
		{"too much, when it is time to retry", maxUnflushedBytes, true, later, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := schedule{interval: time.Second}
			s.add(start, c.bytes, true)
			if c.failed {
				s.failed(start)
			}
			full, flush := s.pressure(c.now)
			require.Equal(t, c.full, full)
			require.Equal(t, c.flush, flush)
		})
	}
}
