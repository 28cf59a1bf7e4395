package systemd

import (
	"time"

	"k8s.io/utils/clock"
)

// ExtendEvery is the time between two notifications that a long task makes progress.
const ExtendEvery = 5 * time.Second

// Extend calls do, and asks systemd for more time for as long as the process reads, writes or computes.
// If do hangs, systemd waits no longer than the unit allows. tell gets the result of each notification.
func Extend(c clock.WithTicker, tell func(error), do func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := c.NewTicker(ExtendEvery)
		defer ticker.Stop()
		for before := ProcessUsage(); ; {
			select {
			case <-over:
				return
			case <-ticker.C():
			}
			if now := ProcessUsage(); now != before {
				before = now
				tell(Working())
			}
		}
	}()
	do()
	close(over)
	<-ended
}

// Usage is the I/O and the CPU time of the process so far, as the system counts them.
type Usage struct {
	blocks int64 // blocks read and written
	cpu    int64 // CPU time in units of cpuStep; an idle process stays below one per tick
}

// cpuStep is more CPU time than an idle process takes between two ticks.
const cpuStep = 250 * time.Millisecond
