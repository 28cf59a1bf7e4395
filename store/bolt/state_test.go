package bolt

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var morning = time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)

func TestCompactor_Due(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name       string
		running    bool
		notBefore  time.Time
		size, free int64
		want       bool
	}{
		{"twice as much free as in use", false, time.Time{}, 48 * mib, 32 * mib, true},
		{"less than that", false, time.Time{}, 49 * mib, 32 * mib, false},
		{"too little to be worth a look", false, time.Time{}, 16 * mib, 15 * mib, false},
		{"one is running", true, time.Time{}, 48 * mib, 32 * mib, false},
		{"too soon after the one before", false, morning.Add(time.Second), 48 * mib, 32 * mib, false},
		{"long enough after it", false, morning, 48 * mib, 32 * mib, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := compactor{running: c.running, notBefore: c.notBefore}
			require.Equal(t, c.want, x.due(morning, c.size, c.free))
		})
	}
}

func TestHistorian_Due(t *testing.T) {
	h := historian{trimmedAt: morning}
	require.False(t, h.due(morning))
	require.False(t, h.due(morning.Add(trimInterval-1)))
	require.True(t, h.due(morning.Add(trimInterval)))
	h.trimmedAt = morning.Add(trimInterval)
	require.False(t, h.due(morning.Add(2*trimInterval-1)))
	require.False(t, h.due(morning), "the clock was set back")
}

// The rewrite begins once for an open database, as soon as it is due.
func TestRekeyer_Begin(t *testing.T) {
	var r rekeyer
	require.False(t, r.begin(false))
	require.True(t, r.begin(true))
	require.False(t, r.begin(true), "it goes on")
	require.False(t, r.begin(false))
	require.False(t, r.begin(true), "it has ended")
}

// The rewrite is retried until the file has the key. The first failure is logged; a file that was
// busy is none.
func TestRekeyer_Next(t *testing.T) {
	var r rekeyer
	full := errors.New("the disk is full")
	for i, try := range []struct {
		err              error
		due              bool
		done, logFailure bool
	}{
		{fmt.Errorf("compact: %w", ErrBusy), true, false, false},
		{full, true, false, true},
		{full, true, false, false},
		{ErrBusy, true, false, false},
		{full, true, false, false},
		{nil, true, false, false}, // the file has another key all the same
		{nil, false, true, false},
	} {
		done, logFailure := r.next(try.err, try.due)
		require.Equal(t, try.done, done, i)
		require.Equal(t, try.logFailure, logFailure, i)
	}

	r = rekeyer{}
	done, logFailure := r.next(full, false)
	require.False(t, done, "the file has the key, but its name may not be durable")
	require.True(t, logFailure)
}

// The end of a replacement wakes a build that waits, once; if the build does not wait, it finds the
// wake-up at its next wait.
func TestIndexer_SpillDone_WakesBuilds(t *testing.T) {
	x := indexer{builds: map[string]*build{}, spilling: map[string]bool{}}
	require.False(t, x.busy())
	x.spilling["pods"] = true
	require.True(t, x.busy())
	b := &build{wake: make(chan struct{}, 1)}
	x.builds["nodes"] = b
	x.spillDone("pods")
	x.wake() // does not block
	require.Len(t, b.wake, 1)
	require.True(t, x.busy(), "the build goes on")
	delete(x.builds, "nodes")
	require.False(t, x.busy())
}
