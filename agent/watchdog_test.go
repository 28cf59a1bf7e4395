package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// interval is the watchdog's.
const interval = time.Minute

// pipeline is the way from a queue to a store, with what the watchdog sees of it.
type pipeline struct {
	clock *clocktesting.FakeClock
	c     *collection
	queue *deltafifo.Queue
	store *gated
	v     vitals
}

// gated is a store that takes a batch when it is let, or refuses it.
type gated struct {
	store.Collection
	entered chan struct{}
	answer  chan error
	over    <-chan struct{} // the test is, however it ended
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

func newPipeline(t *testing.T) *pipeline {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	db := memory.New()
	stored, err := db.Open(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true})
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	over := make(chan struct{})
	p := &pipeline{
		clock: clock, queue: deltafifo.New(deltafifo.Options{Known: informer.Known{Collection: stored}}),
		store: &gated{stored, make(chan struct{}), make(chan error), over},
		c:     &collection{id: "pods", track: newTracker(clock, log), pulse: &pulse{clock: clock}},
	}
	loop := informer.New(informer.Options{
		Name: "pods", Queue: beating{p.queue, p.c.pulse}, Collection: p.store, Observer: pulsing{p.c.track, p.c.pulse}, Clock: clock,
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

// event has something come from the server, and waits until it is in the store's hands.
func (p *pipeline) event(t *testing.T, rv string) {
	t.Helper()
	o, err := object.Parse([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"a","name":"b","uid":"u","resourceVersion":"` + rv + `"}}`))
	require.NoError(t, err)
	require.NoError(t, p.queue.Add(o))
	<-p.store.entered
}

// fed says that the watchdog would be fed after so long.
func (p *pipeline) fed(d time.Duration, writes int64) bool {
	p.clock.Step(d)
	return p.v.stuck(p.clock.Now(), interval, writes, []*collection{p.c}) == ""
}

// A store that takes a batch and does not come back is what the watchdog is for.
func TestWatchdogStuck(t *testing.T) {
	p := newPipeline(t)
	require.True(t, p.fed(0, 1))
	p.event(t, "2")
	require.True(t, p.fed(interval, 1), "it may just be slow")
	require.True(t, p.fed(interval, 1))
	require.False(t, p.fed(interval, 1))
	require.False(t, p.fed(100*interval, 1))
	p.store.answer <- nil
	await(t, func() bool { return p.c.pulse.silence() == 0 })
	require.True(t, p.fed(interval, 2), "it went on after all")
}

// What another collection writes does not hide it for ever.
func TestWatchdogStuckBesideOthers(t *testing.T) {
	p := newPipeline(t)
	p.event(t, "2")
	for n := range int64(stuckBeside - 1) {
		require.True(t, p.fed(interval, n), "it may wait for others, who write")
	}
	require.False(t, p.fed(interval, stuckBeside))
	p.store.answer <- nil
}

// To wait is not to be stuck: for the server, for hours; for room on a disk, while it is
// tried again; for the end of something long that writes, as a fold on a slow card.
func TestWatchdogWaits(t *testing.T) {
	t.Run("for the server", func(t *testing.T) {
		p := newPipeline(t)
		for range 100 {
			require.True(t, p.fed(interval, 1))
		}
	})
	t.Run("for room on the disk", func(t *testing.T) {
		p := newPipeline(t)
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
		p := newPipeline(t)
		p.event(t, "2")
		for n := range int64(stuckBeside - 1) {
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

// The loop that a real agent runs is the one that is watched, and what it watches ends
// with the run.
func TestPulse(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	p := &pulse{clock: clock}
	p.beat()
	clock.Step(time.Hour)
	require.Zero(t, p.silence(), "there is nothing to be heard of")
	p.begin()
	clock.Step(time.Hour)
	require.Equal(t, time.Hour, p.silence())
	p.beat()
	require.Zero(t, p.silence())
	clock.Step(time.Hour)
	p.end()
	require.Zero(t, p.silence())

	q := deltafifo.New(deltafifo.Options{})
	q.Close()
	_, err := beating{q, p}.PopBatch(t.Context())
	require.ErrorIs(t, err, deltafifo.ErrClosed)
	clock.Step(time.Hour)
	require.Zero(t, p.silence(), "after the queue was closed there is nothing on its way")
}
