package bolt

import (
	"context"
	"sync"
)

// background runs the goroutines of a database, which end when it is closed.
type background struct {
	ctx    context.Context //nolint:containedctx // the lifetime of the database, which no call has
	cancel context.CancelFunc

	mu     sync.Mutex
	ended  bool
	active sync.WaitGroup // Add is called only under mu, while not ended
}

func newBackground() *background {
	b := &background{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// start runs fn in a goroutine, unless stop was called. fn must return soon after ctx ends.
func (b *background) start(fn func(ctx context.Context)) {
	if b.enter() {
		go func() {
			defer b.leave()
			fn(b.ctx)
		}()
	}
}

// enter makes stop wait until leave is called. It returns false, and stop does not wait, if
// stop was called before.
func (b *background) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.active.Add(1)
	}
	return !b.ended
}

func (b *background) leave() { b.active.Done() }

// stop cancels the goroutines and waits until they have returned; start does nothing from then
// on. The caller must not hold the write lock: a goroutine may be waiting for it.
func (b *background) stop() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.cancel()
	b.active.Wait()
}
