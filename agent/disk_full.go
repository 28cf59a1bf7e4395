package agent

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/snapcache/snapcache/agent/internal/sleep"
)

// How long it is between two tries to open the database on a full disk: twice as long
// each time.
const (
	roomRetry    = time.Second
	roomRetryMax = 20 * time.Second // less than what systemd is asked for
)

// awaitStore opens the database. Where the disk is full it waits for room and says so:
// ending would not make any, and whoever starts the agent gives up after some times.
func (a *Agent) awaitStore(ctx context.Context) error {
	for wait := roomRetry; ; wait = min(2*wait, roomRetryMax) {
		var err error
		a.extended(func() { err = a.openStore(ctx) })
		if err == nil || !diskFull(err) {
			return err
		}
		a.log.Error("there is no room on the disk for the database; waiting for some", "path", a.config().Store.Path, "wait", wait, "error", err)
		a.tell(a.notifier.Starting("waiting for room on the disk: " + err.Error()))
		if err := sleep.For(ctx, a.clock, wait); err != nil {
			return err
		}
	}
}

func diskFull(err error) bool {
	// Of some errors bbolt keeps the text alone.
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), syscall.ENOSPC.Error())
}
