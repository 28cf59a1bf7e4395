package systemd

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/utils/clock"
)

// Notifier speaks sd_notify. It has no state but its clock: all methods may be called concurrently, and a
// lost message is repaired by the next of its kind.
type Notifier struct {
	clock clock.WithTicker
}

// NewNotifier returns a notifier; the clock times the watchdog.
func NewNotifier(clock clock.WithTicker) *Notifier {
	return &Notifier{clock: clock}
}

// Ready tells that the service is up: the cache can be read.
func (n *Notifier) Ready() error { return send(daemon.SdNotifyReady) }

// Status sets the line that `systemctl status` shows.
func (n *Notifier) Status(text string) error { return send(status(text)) }

// Reloading tells that the configuration is being read anew; [Notifier.Ready] tells that this is over,
// whatever came of it.
func (n *Notifier) Reloading(text string) error {
	// systemd 253 and later want to know when, to tell this reload from the one before.
	return send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec() + status(text))
}

// extension is how much more time [Notifier.Starting] and [Notifier.Working] ask for. They come
// many times as often.
const extension = 30 * time.Second

func extend() string { return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\n", extension.Microseconds()) }

// Starting tells what the service does before it is up, and asks for more time to start
// than TimeoutStartSec= gives.
func (n *Notifier) Starting(text string) error {
	return send(extend() + status(text))
}

// Stopping tells that the service is on its way down, and what it still does.
func (n *Notifier) Stopping(text string) error {
	return send(daemon.SdNotifyStopping + "\n" + status(text))
}

// Working asks for more time to start or to stop than the unit gives, and feeds the watchdog, which
// [Notifier.Watchdog] does not do then.
func (n *Notifier) Working() error { return send(extend() + daemon.SdNotifyWatchdog) }

// Watchdog feeds systemd's watchdog at half the interval of WatchdogSec=, each time only if healthy, which
// is told the whole interval, returns true, until ctx ends. It returns nil then, at once where the unit has
// no watchdog, and an error where $WATCHDOG_USEC can't be understood. A ping that can't be sent is left to
// the next one; if all are lost systemd restarts the service, which is what the watchdog is for. The caller
// waits for it to return; healthy is called from its goroutine and must not block.
func (n *Notifier) Watchdog(ctx context.Context, healthy func(interval time.Duration) bool) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("systemd watchdog: %w", err)
	}
	if interval == 0 {
		return nil
	}
	ticker := n.clock.NewTicker(interval / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			if healthy(interval) {
				_ = send(daemon.SdNotifyWatchdog)
			}
		}
	}
}

// status is the assignment for a status text. A line break in it would begin another assignment.
func status(text string) string {
	return "STATUS=" + strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

func send(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		name, _, _ := strings.Cut(state, "=")
		return fmt.Errorf("systemd notify %s: %w", name, err)
	}
	return nil
}
