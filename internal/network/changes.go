// Package network notices changes of the machine's network, after which a server may be reachable that was
// not before, and finds the users of connections from this machine.
package network

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
)

const (
	// settle is how long a change may go on: an address, its routes and the default route come one after
	// the other.
	settle = time.Second

	// rest is the least time between two calls because of changes. Nodes that start many pods change
	// their routes all the time.
	rest = 10 * time.Second
)

// Changes calls changed some time after the machine got an address or a route, until ctx ends. If it
// returns an error, changes can't be noticed. Except on Linux there are none to notice.
func Changes(ctx context.Context, c clock.Clock, changed func()) error {
	came, stop, err := listen()
	if err != nil {
		return err
	}
	defer stop()
	report(ctx, c, came, changed)
	return nil
}

// report calls changed after values of came, not once for each.
func report(ctx context.Context, c clock.Clock, came <-chan struct{}, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-came:
			if !ok {
				return
			}
		}
		if sleep.For(ctx, c, settle) != nil {
			return
		}
		select {
		case <-came: // of the same change
		default:
		}
		changed()
		if sleep.For(ctx, c, rest) != nil {
			return
		}
	}
}
