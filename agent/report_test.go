package agent

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/agent/internal/database"
	"github.com/snapcache/snapcache/agent/internal/status"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/store"
)

// TestNotify checks that the agent notifies systemd of readiness although no server can be reached, of
// the age of the data, and of its stop.
func TestNotify(t *testing.T) {
	n := newNode(t, podsOnly)
	n.seed(t)
	socket := filepath.Join(n.dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	sent := func(what string) string {
		t.Helper()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		b := make([]byte, 4096)
		for {
			size, err := conn.Read(b)
			require.NoError(t, err, "systemd did not receive %q", what)
			if text := string(b[:size]); strings.Contains(text, what) {
				return text
			}
		}
	}
	_, stop := n.run(t, io.Discard)
	sent("READY=1")
	require.Contains(t, sent("STATUS="), "data is 1h0m old: 2 objects in 1 collection, 0 of 2 caught up, 1 never synced")
	require.NoError(t, stop())
	sent("STOPPING=1")
}

// TestProgress checks that the progress of a long list has the number of objects, the rate and the
// time left, and that the terminal's line is cleared when the list is complete.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var terminal bytes.Buffer
		a := &Agent{
			opts: Options{Progress: &terminal}, log: slog.New(slog.DiscardHandler), settings: newSettings(&config.AgentConfiguration{}, time.Now()),
			db: database.InMemory(nil),
		}
		c := collection.New(collection.Spec{ID: "pods"}, a.collectionOptions(false))
		a.collections.Store(&[]*collection.Collection{c})
		require.Empty(t, status.Progress(a.clock, c))
		c.Tracker.Listing(store.ReasonInitial, 0, 20_000)
		time.Sleep(2 * time.Second)
		c.Tracker.Listing(store.ReasonInitial, 5_000, 15_000)
		want := "pods (initial): 5,000 objects, 2,500 a second, 15,000 to go, about 6s"
		require.Equal(t, want, status.Progress(a.clock, c))
		a.drawProgress()
		require.Equal(t, "\r\x1b[Klisting "+want, terminal.String())

		c.Tracker.Listing(store.ReasonInitial, 5_000, -1)
		require.NotContains(t, status.Progress(a.clock, c), "to go", "the server sent no count")
		terminal.Reset()
		c.Tracker.Listed(store.ReasonInitial, "9", 20_000, time.Second)
		a.drawProgress()
		require.Equal(t, "\r\x1b[K", terminal.String())
	})
}
