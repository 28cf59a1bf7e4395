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

// Ready reports that the service is up: the cache can be read.
func Ready() error { return send(daemon.SdNotifyReady) }

// Status sets the status line of `systemctl status`.
func Status(text string) error { return send(status(text)) }

// Reloading reports that the configuration is being reloaded. [Ready] reports the end of
// the reload, also after a failure.
func Reloading(text string) error {
	// systemd 253 and later need the time, to distinguish this reload from the previous one.
	return send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec() + status(text))
}

// extension is what [Starting] and [Working] ask for. The agent calls them more often.
const extension = 30 * time.Second

func extend() string { return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\n", extension.Microseconds()) }

// Starting reports a step of the service's start, and asks for more time to start than
// TimeoutStartSec= allows.
func Starting(text string) error { return send(extend() + status(text)) }

// Stopping reports that the service is shutting down, and the step that it is at.
func Stopping(text string) error { return send(daemon.SdNotifyStopping + "\n" + status(text)) }

// Working asks for more time to start or to stop than the unit allows. It also feeds the watchdog,
// because [Watchdog] does not run then.
func Working() error { return send(extend() + daemon.SdNotifyWatchdog) }

// Watchdog feeds systemd's watchdog at half the interval of WatchdogSec= until ctx ends, each time
// only if healthy(interval) returns true. It returns nil when ctx ends, or at once if the unit has
// no watchdog, and an error if $WATCHDOG_USEC is not valid. A ping that can't be sent is not
// retried: if all are lost, systemd restarts the service, which is the purpose of the watchdog.
// healthy is called from the goroutine of Watchdog and must not block.
func Watchdog(ctx context.Context, c clock.WithTicker, healthy func(interval time.Duration) bool) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("systemd watchdog: %w", err)
	}
	if interval == 0 {
		return nil
	}
	ticker := c.NewTicker(interval / 2)
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

// status assigns a status text. A line break in it would begin another assignment.
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
