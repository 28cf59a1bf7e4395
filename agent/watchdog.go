package agent

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// stuckIntervals is for how many intervals of the watchdog nothing may be heard of a
	// batch on its way into the store, where nothing else is written either.
	stuckIntervals = 3

	// stuckBeside is for how many, where other things are.
	stuckBeside = 15

	// workingEvery is how often systemd is told that what takes long goes on.
	workingEvery = 5 * time.Second
)

// vitals is what the watchdog remembers between two looks.
type vitals struct {
	writes int64     // of the store
	wrote  time.Time // when that last changed

	told atomic.Pointer[string] // what is stuck, for the status; nil for nothing
}

// stuck names the collection whose changes do not get into the store, for no reason that
// is known: "" where there is none. To wait for the server is no such thing, nor is a
// store that refuses changes, as on a full disk, and is tried again; nor one that takes
// long and writes.
func (v *vitals) stuck(now time.Time, interval time.Duration, writes int64, collections []*collection) string {
	if v.wrote.IsZero() || writes != v.writes {
		v.writes, v.wrote = writes, now
	}
	patience := stuckIntervals * interval
	if now.Sub(v.wrote) < patience {
		patience = stuckBeside * interval
	}
	for _, c := range collections {
		if c.pulse.silence() >= patience {
			return c.id
		}
	}
	return ""
}

// healthy says that the database answers, and that what comes from the server gets into
// it; the watchdog asks.
func (a *Agent) healthy(interval time.Duration) bool {
	if _, err := a.db.Collections(); err != nil {
		return false
	}
	stats := a.db.Stats()
	id := a.vitals.stuck(a.clock.Now(), interval, stats.Commits+stats.PagesWritten, a.all())
	if id == "" {
		a.vitals.told.Store(nil)
		return true
	}
	what := fmt.Sprintf("changes of %s do not get into the store", id)
	if a.vitals.told.Swap(&what) == nil {
		a.log.Error("STUCK: changes do not get into the store, and nothing says why; the watchdog is not fed any more, so that systemd starts the agent again", "collection", id)
	}
	return false
}

// extended has systemd wait for do for as long as that goes on: it reads, writes or
// counts. One that hangs is not waited for longer than the unit says.
func (a *Agent) extended(do func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := a.clock.NewTicker(workingEvery)
		defer ticker.Stop()
		for before := effort(); ; {
			select {
			case <-over:
				return
			case <-ticker.C():
			}
			if now := effort(); now != before {
				before = now
				a.tell(a.notifier.Working())
			}
		}
	}()
	do()
	close(over)
	<-ended
}
