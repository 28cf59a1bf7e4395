package e2e

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// watchdogInterval is the watchdog interval that the agent gets in WATCHDOG_USEC.
const watchdogInterval = 400 * time.Millisecond

// watched starts an agent like systemd with a watchdog, and returns the agent's notifications. The
// agent's server is not there.
func watched(t *testing.T, x *site) (*agent, <-chan string) {
	t.Helper()
	path := filepath.Join(x.dir, "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	notified := make(chan string, 10_000)
	go func() {
		defer close(notified)
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			notified <- string(b[:n])
		}
	}()
	t.Cleanup(func() { _ = conn.Close() })
	x.env = append(x.env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC="+strconv.FormatInt(watchdogInterval.Microseconds(), 10))
	return x.start(), notified
}

// awaitNotified waits for a notification with this prefix, and returns those before it.
func awaitNotified(t *testing.T, notified <-chan string, prefix string) (before []string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case s, ok := <-notified:
			require.True(t, ok)
			if strings.HasPrefix(s, prefix) {
				return before
			}
			before = append(before, s)
		case <-timeout:
			t.Fatalf("nothing that begins with %q: %q", prefix, before)
		}
	}
}

// offlineSite returns a site whose server refuses connections, and the server's address.
func offlineSite(t *testing.T) (x *site, address string) {
	t.Helper()
	address = harness.FreeAddress(t)
	x = newSite(t, settings{resources: "- resource: pods"})
	x.kubeconfig = filepath.Join(x.dir, "kubeconfig")
	require.NoError(t, os.WriteFile(x.kubeconfig, []byte(`
apiVersion: v1
kind: Config
current-context: x
clusters: [{name: x, cluster: {server: "http://`+address+`"}}]
users: [{name: x, user: {token: t}}]
contexts: [{name: x, context: {cluster: x, user: x}}]
`), 0o600))
	return x, address
}

// TestWatchdogOfStuckAgent gives the agent a server that accepts connections and never answers, which
// is a stall for a watchdog this short: the agent must stop notifying the watchdog and report why.
// Before that it waits for a server that is not there, and must keep notifying.
func TestWatchdogOfStuckAgent(t *testing.T) {
	t.Parallel()
	x, address := offlineSite(t)
	_, notified := watched(t, x)
	awaitNotified(t, notified, "READY=1")
	for range 20 { // five times as long as a stall may last
		awaitNotified(t, notified, "WATCHDOG=1")
	}
	silent, err := net.Listen("tcp", address)
	require.NoError(t, err)
	defer silent.Close() // the backlog accepts connections
	awaitNotified(t, notified, "STATUS=STUCK: changes of pods do not get into the store; never synced")
	require.NotContains(t, awaitNotified(t, notified, "STATUS=STUCK"), "WATCHDOG=1")
	require.Contains(t, string(harness.ReadFile(x.t, x.log)), "STUCK")
	resp, err := http.Get("http://" + x.metrics + "/livez")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
}
