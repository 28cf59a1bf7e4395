//go:build snapcache_stuck

package collection

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/snapcache/snapcache/deltafifo"
)

// This build is only for the test of the watchdog: after SIGUSR2 it is stuck for good, between the
// queues and the store, and between the agent and the server.

// stuck is closed by the first SIGUSR2.
var stuck = sync.OnceValue(func() <-chan struct{} {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2)
	asked := make(chan struct{})
	go func() {
		<-signals
		close(asked)
	}()
	return asked
})

func init() { stuck() } // so that no signal is missed

// popBatch takes a batch from a queue, or stops waiting for one after SIGUSR2, so that the agent is
// stuck even if no event arrives.
func popBatch(ctx context.Context, q *deltafifo.Queue) (deltafifo.Batch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-stuck():
			cancel()
		case <-done:
		}
	}()
	return q.PopBatch(ctx)
}

// hang blocks for ever after SIGUSR2.
func hang() {
	select {
	case <-stuck():
		select {}
	default:
	}
}
