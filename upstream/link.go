package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// lateAfter is how long nothing may come of an answer that is waited for before the server is probed: some
	// round trips of a slow link.
	lateAfter = 500 * time.Millisecond

	// silentAfter is how long nothing may come, of that or of the probe's answer, before the link is in doubt.
	silentAfter = 1500 * time.Millisecond

	// lostAfter is how long the link is in doubt before its connections are closed. A packet that is lost several times
	// in a row comes sooner, and a new connection with its watches costs some round trips.
	lostAfter = 5 * time.Second

	// linkInterval is the time between two looks at the answers that are waited for.
	linkInterval = 250 * time.Millisecond

	// probeInterval is the time between the first two probes of a link in doubt. It doubles, up to maxProbeInterval:
	// the collections connect again by themselves, and that ends the doubt too.
	probeInterval    = time.Second
	maxProbeInterval = 30 * time.Second

	// probeTimeout is how long a probe may take: the first round trips of a connection on a bad link.
	probeTimeout = 10 * time.Second
)

// ErrLink means that an answer is not waited for: the server has sent nothing lately, to anyone.
var ErrLink = errors.New("the link to the server is silent")

// Link is whether the server answers now. A link that was lost without a reset, or a server that hangs, shows only by
// its silence, which a watch can't tell from one in which nothing changes. So at the first late answer the
// server is probed, and if nothing comes of that either, the link is in doubt until anything comes. A server that is
// merely slow with one answer sends others.
//
// It is safe for concurrent use.
type Link struct {
	// lost closes the connections: those of a link that has come back may lead nowhere. back is called when the doubt
	// ends after that. Neither may wait.
	lost, back func()

	log   *slog.Logger
	clock clock.WithDelayedExecution
	probe func(context.Context) error
	began time.Time

	heard atomic.Int64 // when the newest part of an answer came, as the time since began
	doubt atomic.Bool

	mu      sync.Mutex
	waiting map[*unanswered]struct{}
	since   time.Duration // of the doubt
	closed  bool          // the connections have been since
	oldest  time.Duration // when waiting was last empty
	due     time.Duration // the time of the next probe
	pause   time.Duration // before the one after that
	probing bool
	timer   clock.Timer     // nil if nothing is looked at
	ctx     context.Context //nolint:containedctx // the probes'
	end     context.CancelFunc
}

// unanswered is a request that is waited for.
type unanswered struct {
	grace  time.Duration
	giveUp context.CancelCauseFunc
}

// newLink returns a link without doubt. Its probe has to be set, which asks the server for something small.
func newLink(c clock.WithDelayedExecution) *Link {
	l := &Link{
		lost: func() {}, back: func() {}, log: slog.New(slog.DiscardHandler), clock: c, began: c.Now(),
		waiting: make(map[*unanswered]struct{}), pause: probeInterval,
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// Good reports whether there is no doubt that the server answers.
func (l *Link) Good() bool { return !l.doubt.Load() }

// Silent returns how long the link has been in doubt, 0 for no doubt.
func (l *Link) Silent() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Good() {
		return 0
	}
	return max(l.now()-l.since, 1)
}

// Await returns a context for a request whose answer is waited for. When the link is in doubt, and still is after a
// grace, the context ends with the cause [ErrLink]. The caller calls answered, of which the first call counts: with
// nil when the answer begins, with the error of a request that has none. After an error of the network the link is in
// doubt at once.
func (l *Link) Await(ctx context.Context, grace time.Duration) (_ context.Context, answered func(error)) {
	ctx, giveUp := context.WithCancelCause(ctx)
	u := &unanswered{grace, giveUp}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.oldest = l.now()
	}
	l.waiting[u] = struct{}{}
	l.giveUp()
	l.look()
	return ctx, func(err error) {
		l.mu.Lock()
		_, first := l.waiting[u]
		delete(l.waiting, u)
		if first && err != nil && isNetwork(err) && ctx.Err() == nil {
			l.suspect(err)
		}
		l.mu.Unlock()
		if first && err == nil {
			l.hear()
		}
	}
}

// hear notes that a part of an answer came.
func (l *Link) hear() {
	l.heard.Store(int64(l.now()))
	if !l.doubt.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doubt.CompareAndSwap(true, false) {
		l.log.Info("the server answers again", "after", (l.now() - l.since).Round(time.Millisecond))
		if l.closed {
			l.back()
		}
	}
}

// close ends the probes.
func (l *Link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.end()
}

func (l *Link) now() time.Duration { return l.clock.Since(l.began) }

// look has step called soon, unless it will be.
func (l *Link) look() {
	if l.timer == nil && l.ctx.Err() == nil {
		l.timer = l.clock.AfterFunc(linkInterval, l.step)
	}
}

// step looks at the answers that are waited for.
func (l *Link) step() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.ctx.Err() != nil || len(l.waiting) == 0 && l.Good() {
		return
	}
	now := l.now()
	silent := now - max(l.oldest, time.Duration(l.heard.Load()))
	switch {
	case l.Good() && silent >= silentAfter:
		l.suspect(fmt.Errorf("%w: nothing came for %s", ErrLink, silent.Round(time.Millisecond)))
	case !l.Good() && now >= l.due, l.Good() && silent >= lateAfter:
		l.sendProbe()
	}
	if !l.Good() && !l.closed && now-l.since >= lostAfter {
		l.closed = true
		l.lost()
	}
	l.giveUp()
	l.look()
}

// giveUp ends the waits whose grace is over.
func (l *Link) giveUp() {
	if l.Good() {
		return
	}
	for u := range l.waiting {
		if l.now()-l.since >= u.grace {
			u.giveUp(ErrLink)
		}
	}
}

// suspect puts the link in doubt.
func (l *Link) suspect(why error) {
	if !l.doubt.CompareAndSwap(false, true) {
		return
	}
	l.since, l.pause, l.closed = l.now(), probeInterval, false
	l.log.Warn("the server may not be reached: requests are answered without it until it answers", "error", Explain(why))
	l.sendProbe()
	l.look()
}

// sendProbe sends a probe unless one is under way. Its answer is heard like any other.
func (l *Link) sendProbe() {
	if l.probing || l.ctx.Err() != nil {
		return
	}
	l.probing, l.due = true, l.now()+l.pause
	l.pause = min(2*l.pause, maxProbeInterval)
	go func() {
		ctx, cancel := context.WithTimeout(l.ctx, probeTimeout)
		defer cancel()
		_ = l.probe(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.probing = false
	}()
}
