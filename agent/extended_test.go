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

// TestStartTimeoutExtended checks that the agent asks systemd for more time while a long task makes
// progress, and not while it hangs.
func TestStartTimeoutExtended(t *testing.T) {
	const looks = 8
	for _, c := range []struct {
		name        string
		between     func()
		least, most int
	}{
		{"it works", func() {
			for before := systemd.ProcessUsage(); systemd.ProcessUsage() == before; {
			}
		}, looks - 1, looks},
		{"it hangs", func() {}, 0, looks / 4}, // the CPU time of before may fill a step
	} {
		t.Run(c.name, func(t *testing.T) {
			m := notified(t)
			synctest.Test(t, func(*testing.T) {
				a := &Agent{clock: clock.RealClock{}, log: slog.New(slog.DiscardHandler)}
				a.extended(func() {
					for range looks {
						c.between()
						time.Sleep(systemd.ExtendEvery)
					}
				})
				a.tell(systemd.Stopping("over"))
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
