package collection

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// interval is the watchdog's.
const interval = time.Minute

// harness is the way from a queue to a store, with a stall detector.
type harness struct {
	clock *clocktesting.FakeClock
	c     *Collection
	queue *deltafifo.Queue
	store *gated
	stall StallDetector
}

// gated is a store whose Apply waits for the test's answer.
type gated struct {
	store.Collection
	entered chan struct{}
	answer  chan error
	over    <-chan struct{} // closed at the end of the test
}

func (g *gated) Apply(b store.Batch) error {
	select {
	case g.entered <- struct{}{}:
	case <-g.over:
	}
	select {
	case err := <-g.answer:
		if err != nil {
			return err
		}
	case <-g.over:
	}
	return g.Collection.Apply(b)
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	db := memory.New()
	stored, err := db.Open(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true})
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	over := make(chan struct{})
	p := &harness{
		clock: clock, queue: deltafifo.New(deltafifo.Options{KnownObjects: pipeline.KnownObjects{Collection: stored}}),
		store: &gated{stored, make(chan struct{}), make(chan error), over},
		c:     New(Spec{ID: "pods"}, Options{Clock: clock, Log: log}),
	}
	loop := pipeline.NewLoop(pipeline.LoopOptions{
		Queue: p.queue, Collection: p.store, Clock: clock, Around: p.c.Tracker.progress.around,
		Sinks: []pipeline.Sink{p.c.Tracker}, StoreFailed: p.c.Tracker.StoreFailed,
	})
	p.queue.Start("1")
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(context.Background()) }()
	t.Cleanup(func() {
		close(over)
		p.queue.Close()
		require.NoError(t, <-ended)
		require.NoError(t, db.Close())
	})
	return p
}

// event queues an event of the server, and waits until the store has got it.
func (p *harness) event(t *testing.T, rv string) {
	t.Helper()
	o, err := object.Parse([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"a","name":"b","uid":"u","resourceVersion":"` + rv + `"}}`))
	require.NoError(t, err)
	require.NoError(t, p.queue.Add(o))
	<-p.store.entered
}

// fed reports whether the watchdog would be fed once d has passed.
func (p *harness) fed(d time.Duration, writes int64) bool {
	p.clock.Step(d)
	return p.stall.Stalled(p.clock.Now(), interval, writes, []*Collection{p.c}) == ""
}

// TestStallDetector detects a store that takes a batch and does not return.
func TestStallDetector(t *testing.T) {
	p := newHarness(t)
	require.True(t, p.fed(0, 1))
	p.event(t, "2")
	require.True(t, p.fed(interval, 1), "no stall after one interval")
	require.True(t, p.fed(interval, 1))
	require.False(t, p.fed(interval, 1))
	require.False(t, p.fed(100*interval, 1))
	p.store.answer <- nil
	await(t, func() bool { return p.c.Tracker.progress.idleFor() == 0 })
	require.True(t, p.fed(interval, 2), "no stall once the batch is handled")
}

// TestStallDetector_OthersWrite detects a stall later while other collections write.
func TestStallDetector_OthersWrite(t *testing.T) {
	p := newHarness(t)
	p.event(t, "2")
	for n := range int64(stallIntervalsBeside - 1) {
		require.True(t, p.fed(interval, n), "no stall yet while other collections write")
	}
	require.False(t, p.fed(interval, stallIntervalsBeside))
	p.store.answer <- nil
}

// TestStallDetector_NotDuringWaits reports no stall during a wait for the server, for room on a disk, while
// it is tried again, and for something long that writes, such as a fold on a slow card.
func TestStallDetector_NotDuringWaits(t *testing.T) {
	t.Run("for the server", func(t *testing.T) {
		p := newHarness(t)
		for range 100 {
			require.True(t, p.fed(interval, 1))
		}
	})
	t.Run("for room on the disk", func(t *testing.T) {
		p := newHarness(t)
		p.event(t, "2")
		for range 100 {
			p.store.answer <- errors.New("no space left on device")
			await(t, p.clock.HasWaiters)
			require.True(t, p.fed(interval, 1)) // the step ends the wait between two tries
			<-p.store.entered
		}
		p.store.answer <- nil
	})
	t.Run("for what writes", func(t *testing.T) {
		p := newHarness(t)
		p.event(t, "2")
		for n := range int64(stallIntervalsBeside - 1) {
			require.True(t, p.fed(interval, n))
		}
		p.store.answer <- nil
	})
}

// await waits for another goroutine.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, time.Millisecond)
}

// TestProgress checks what counts as progress, and that a batch is in progress while it is handled.
func TestProgress(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	p := &progress{clock: clock}
	p.touch()
	clock.Step(time.Hour)
	require.Zero(t, p.idleFor(), "idle without work")
	p.begin()
	clock.Step(time.Hour)
	require.Equal(t, time.Hour, p.idleFor())
	p.touch()
	require.Zero(t, p.idleFor())
	clock.Step(time.Hour)
	p.end()
	require.Zero(t, p.idleFor())

	failed := errors.New("failed")
	err := p.around(deltafifo.Batch{}, func() error {
		clock.Step(time.Hour)
		require.Equal(t, time.Hour, p.idleFor())
		return failed
	})
	require.Equal(t, failed, err)
	clock.Step(time.Hour)
	require.Zero(t, p.idleFor(), "a batch that failed is not on its way any more")
}
