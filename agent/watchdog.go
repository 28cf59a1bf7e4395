package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/systemd"
)

// watchdog is the state that systemd is notified of besides the status line.
type watchdog struct {
	ready   atomic.Bool              // systemd was notified that the agent is ready
	stall   collection.StallDetector // used by the goroutine of the watchdog alone
	stalled atomic.Pointer[string]   // describes the stuck collection; nil if none is
}

// stuck describes the collection that the watchdog found stuck; empty if none is.
func (w *watchdog) stuck() string {
	if what := w.stalled.Load(); what != nil {
		return *what
	}
	return ""
}

// healthy reports whether the database can be read and changes from the server reach it. The watchdog
// calls it, with its interval.
func (a *Agent) healthy(interval time.Duration) bool {
	if _, err := a.db.Collections(); err != nil {
		return false
	}
	stats := a.db.Stats()
	id := a.watchdog.stall.Stalled(a.clock.Now(), interval, stats.Commits+stats.PagesWritten, a.all())
	if id == "" {
		a.watchdog.stalled.Store(nil)
		return true
	}
	what := localapi.Stuck(id)
	if a.watchdog.stalled.Swap(&what) == nil {
		a.log.Error(what+", for no known reason; the watchdog is no longer fed, so systemd restarts the agent", "collection", id)
	}
	return false
}

// extended calls do, and asks systemd for more time while it works.
func (a *Agent) extended(do func()) { systemd.Extend(a.clock, a.tell, do) }

// caughtUpEvery is the time between two checks whether all collections are caught up, if systemd is to
// be notified only then.
const caughtUpEvery = time.Second

// tellReady notifies systemd that the service is up, once health.readyWhen holds. Until then it
// reports to systemd which collections it waits for. It returns when ctx ends.
func (a *Agent) tellReady(ctx context.Context) {
	for {
		reloaded := a.settings.next()
		missing := ""
		if a.config().Health.ReadyWhen == config.ReadyCaughtUp {
			missing = a.status.NotCaughtUp()
		}
		if missing == "" {
			a.watchdog.ready.Store(true)
			a.tell(systemd.Ready())
			return
		}
		a.tell(systemd.Starting("waiting until " + localapi.CaughtUp + ": " + missing))
		if sleep.UnlessWoken(ctx, a.clock, caughtUpEvery, reloaded) != nil {
			return
		}
	}
}
