package sleep

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Bell ends the waits between retries early: the reason to wait may be gone. It belongs to a context,
// see [WithBell]. The zero value is ready, and it is safe for concurrent use.
type Bell struct {
	mu   sync.Mutex
	rung chan struct{} // closed at the next ring; nil if no retry waits
}

// Ring ends all waits of [Retry] that are in progress.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

func (b *Bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

// bellKey is the context key of a *Bell.
type bellKey struct{}

// WithBell returns a context with a bell.
func WithBell(ctx context.Context, b *Bell) context.Context {
	return context.WithValue(ctx, bellKey{}, b)
}

// Retry waits for d before another try, or until woken has a value or is closed, the bell of ctx rings,
// or ctx ends. It reports whether it was woken or the bell rang. A nil woken never wakes.
func Retry(ctx context.Context, c clock.Clock, d time.Duration, woken <-chan struct{}) bool {
	var rung <-chan struct{}
	if b, ok := ctx.Value(bellKey{}).(*Bell); ok {
		rung = b.next()
	}
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return false
	case <-rung:
	case <-woken:
	}
	return true
}

// maxDelay is the longest wait before a retry that a server can ask for with Retry-After. A
// kube-apiserver asks for seconds. An hour comes from a gateway that does not know when its server is
// back: that is no reason to be offline for an hour, and a request each few minutes is no load.
const maxDelay = 2 * time.Minute

// Delay returns how long to wait before a retry: d or, if that is longer, asked, which the server asks
// for, up to a limit of minutes.
func Delay(d, asked time.Duration) time.Duration { return max(d, min(asked, maxDelay)) }
