//go:build snapcache_stuck

package collection

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
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

// hang blocks for ever after SIGUSR2.
func hang() {
	select {
	case <-stuck():
		select {}
	default:
	}
}
