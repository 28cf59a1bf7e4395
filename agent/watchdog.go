package agent

import (
	"time"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/systemd"
)

// workingEvery is the time between two notifications to systemd that a long task makes progress.
const workingEvery = 5 * time.Second

// healthy reports whether the database can be read and changes from the server reach it. The watchdog
// calls it, with its interval.
func (a *Agent) healthy(interval time.Duration) bool {
	if _, err := a.db.Collections(); err != nil {
		return false
	}
	stats := a.db.Stats()
	id := a.stall.Stalled(a.clock.Now(), interval, stats.Commits+stats.PagesWritten, a.all())
	if id == "" {
		a.stalled.Store(nil)
		return true
	}
	what := localapi.Stuck(id)
	if a.stalled.Swap(&what) == nil {
		a.log.Error(what+", for no known reason; the watchdog is no longer fed, so systemd restarts the agent", "collection", id)
	}
	return false
}

// extended calls do, and asks systemd for more time for as long as the process reads, writes or
// computes. If do hangs, systemd waits no longer than the unit allows.
func (a *Agent) extended(do func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := a.clock.NewTicker(workingEvery)
		defer ticker.Stop()
		for before := processUsage(); ; {
			select {
			case <-over:
				return
			case <-ticker.C():
			}
			if now := processUsage(); now != before {
				before = now
				a.tell(systemd.Working())
			}
		}
	}()
	do()
	close(over)
	<-ended
}
