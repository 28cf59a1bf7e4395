package bolt

import (
	"context"
	"sync"
)

// background is what a database does by itself, in goroutines that end with it.
type background struct {
	ctx    context.Context //nolint:containedctx // the lifetime of the database, which no call has
	cancel context.CancelFunc

	mu     sync.Mutex
	ended  bool
	active sync.WaitGroup // only added to under mu while not ended
}

func newBackground() *background {
	b := &background{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// start runs fn in a goroutine, unless the database is being closed. fn must return
// soon after ctx ends.
func (b *background) start(fn func(ctx context.Context)) {
	if b.enter() {
		go func() {
			defer b.leave()
			fn(b.ctx)
		}()
	}
}

// enter keeps stop waiting until leave. It says whether stop was not called before.
func (b *background) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.active.Add(1)
	}
	return !b.ended
}

func (b *background) leave() { b.active.Done() }

// stop ends what runs and waits for it. Nothing starts from then on. The caller must
// not hold the write lock, which what runs may wait for.
func (b *background) stop() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.cancel()
	b.active.Wait()
}
