package agent

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/snapcache/snapcache/internal/sleep"
)

// The pause between two tries to open the database on a full disk begins at roomRetry and doubles up
// to roomRetryMax.
const (
	roomRetry    = time.Second
	roomRetryMax = 20 * time.Second // less than the time that a notification asks systemd for
)

// awaitStore opens the database. If the disk is full, it waits for free space, and reports that in
// the log and to systemd: an exit would free nothing, and systemd gives up after a few restarts.
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
	// bbolt keeps only the text of some errors.
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), syscall.ENOSPC.Error())
}
