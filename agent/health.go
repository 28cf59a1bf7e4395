package agent

import (
	"context"
	"time"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/systemd"
)

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
