package objects

import (
	"context"
	"sync"
	"sync/atomic"
)

// parallel calls do with every number below n, in the given number of goroutines, until a call fails
// or ctx ends. It returns the first error.
func parallel(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err) // only the first counts
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
