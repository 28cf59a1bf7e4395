//go:build unix

package agent

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/systemd"
)

// TestExtended has systemd asked for more time as long as what takes long does something,
// and not while it stands still.
func TestExtended(t *testing.T) {
	const looks = 8
	for name, c := range map[string]struct {
		between     func()
		least, most int
	}{
		"it works": {func() {
			for before := processUsage(); processUsage() == before; {
			}
		}, looks - 1, looks},
		"it hangs": {func() {}, 0, looks / 4}, // what it did before may come to a whole step
	} {
		t.Run(name, func(t *testing.T) {
			m := notified(t)
			synctest.Test(t, func(*testing.T) {
				a := &Agent{clock: clock.RealClock{}, log: slog.New(slog.DiscardHandler)}
				a.notifier = systemd.NewNotifier(a.clock)
				a.extended(func() {
					for range looks {
						c.between()
						time.Sleep(workingEvery)
					}
				})
				a.tell(a.notifier.Stopping("over"))
			})
			asked := 0
			for _, message := range m.next(t, "the end", func(s string) bool { return strings.Contains(s, "STOPPING=1") }) {
				if strings.Contains(message, "EXTEND_TIMEOUT_USEC=") {
					asked++
				}
			}
			require.GreaterOrEqual(t, asked, c.least)
			require.LessOrEqual(t, asked, c.most)
		})
	}
}
