package agent

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/systemd"
)

// awaitStore opens the database. If the disk is full, it waits for free space, and reports that in
// the log and to systemd: an exit would free nothing, and systemd gives up after a few restarts.
func (a *Agent) awaitStore(ctx context.Context) error {
	// The longest pause is less than the time that a notification asks systemd for.
	backoff := sleep.Backoff(time.Second, 20*time.Second, 0)
	for {
		var err error
		a.extended(func() { err = a.openStore(ctx) })
		if err == nil || !diskFull(err) {
			return err
		}
		d := backoff.Step()
		a.log.Error("the disk is too full to open the database; retrying", "path", a.config().Store.Path, "wait", d, "error", err)
		a.tell(systemd.Starting("waiting for room on the disk: " + err.Error()))
		if err := sleep.For(ctx, a.clock, d); err != nil {
			return err
		}
	}
}

func diskFull(err error) bool {
	// bbolt keeps only the text of some errors.
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), syscall.ENOSPC.Error())
}
