package agent

import (
	"fmt"
	"time"
)

// workingEvery is how often systemd is notified that something that takes long goes on.
const workingEvery = 5 * time.Second

// healthy reports whether the database answers and what comes from the server reaches it. The
// watchdog calls it.
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
	what := fmt.Sprintf("changes of %s do not get into the store", id)
	if a.stalled.Swap(&what) == nil {
		a.log.Error("STUCK: changes do not get into the store, and nothing says why; the watchdog is not fed any more, so that systemd starts the agent again", "collection", id)
	}
	return false
}

// extended calls do, and has systemd wait for it for as long as it does something: reads, writes or
// computes. If it hangs, systemd waits no longer than the unit allows.
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
				a.tell(a.notifier.Working())
			}
		}
	}()
	do()
	close(over)
	<-ended
}
