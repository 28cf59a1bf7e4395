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

// This build is for the test of the watchdog, and no product: SIGUSR2 makes it stuck for
// good, between the queues and the store, and between the agent and the server.

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

// popBatch takes a batch from a queue, or none once the agent is to be stuck, so that it is even if
// nothing happens.
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

// hang does not return once the agent is to be stuck.
func hang() {
	select {
	case <-stuck():
		select {}
	default:
	}
}
