package reflector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/snapcache/snapcache/internal/sleep"
)

// spreadLook is how soon a reader ends the wait before a list.
const spreadLook = time.Second

// spread waits a random share of Options.Spread before the list that follows a 410, once.
func (r *Reflector) spread(ctx context.Context) {
	why := r.unspread
	r.unspread = nil
	if why == nil || r.opts.Spread == nil {
		return
	}
	share, began := rand.Float64(), r.opts.Clock.Now() //nolint:gosec // spreads load, guards nothing
	for waited := false; ctx.Err() == nil; waited = true {
		left := time.Duration(share*float64(r.opts.Spread())) - r.opts.Clock.Since(began)
		if left <= 0 {
			return
		}
		if !waited {
			r.opts.Logger.Info("waiting before the list", "wait", left.Round(time.Millisecond))
			r.opts.Observer.Phase(PhaseWaiting, fmt.Errorf("the list that is needed waits for a moment, because the server may "+
				"have to list for all nodes: %w", why))
		}
		_ = sleep.For(ctx, r.opts.Clock, min(left, spreadLook)) // the end of ctx ends the loop
	}
}
