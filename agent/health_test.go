package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// get returns the agent's answer to a GET of path on its socket.
func (n *node) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", n.cfg.LocalAPI.Socket)
		},
	}}
	return get(t, client, "http://agent"+path)
}

func get(t *testing.T, client *http.Client, url string) (code int, body string) {
	t.Helper()
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

// TestHealth checks the health endpoints, metrics and profiles on the socket, and which of them the
// metrics' address serves too.
func TestHealth(t *testing.T) {
	address := freeAddress(t)
	n := newNode(t, "resources: [{resource: pods}]\nmetrics: {address: '"+address+"'}")
	n.seed(t)
	_, stop := n.run(t, io.Discard)

	code, body := n.get(t, "/livez")
	require.Equal(t, 200, code)
	require.Equal(t, "ok", body)
	code, body = n.get(t, "/livez?verbose")
	require.Equal(t, 200, code)
	require.Equal(t, "[+]database ok\n[+]pipeline ok\nlivez check passed\n", body)
	code, body = n.get(t, "/readyz?verbose")
	require.Equal(t, 200, code)
	require.Regexp(t, `\[\+\]pods ok: 1h0m old, 2 objects\nreadyz check passed`, body)
	code, body = n.get(t, "/metrics")
	require.Equal(t, 200, code)
	require.Contains(t, body, "snapcache_config_last_reload_successful 1")
	code, _ = n.get(t, "/debug/pprof/goroutine?debug=1")
	require.Equal(t, 200, code)

	open := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tc := range []struct {
		path string
		want int
	}{
		{"/livez", 200}, {"/readyz", 200}, {"/metrics", 200},
		{"/debug/pprof/", 404}, {"/debug/pprof/goroutine", 404}, {"/v1alpha1/status", 404}, {"/v1alpha1/reload", 404},
	} {
		code, _ := get(t, open, "http://"+address+tc.path)
		require.Equal(t, tc.want, code, tc.path)
	}
	require.NoError(t, stop())
}

func TestNotReady(t *testing.T) {
	t.Run("too old", func(t *testing.T) {
		n := newNode(t, "resources: [{resource: pods}]\nhealth: {maxStaleness: 30m}")
		n.seed(t)
		n.run(t, io.Discard)
		code, body := n.get(t, "/readyz")
		require.Equal(t, 503, code)
		require.Contains(t, body, "[-]pods failed: 1h0m old, more than health.maxStaleness (30m0s)\nreadyz check failed\n")
		code, _ = n.get(t, "/livez")
		require.Equal(t, 200, code, "a restart would not make it younger")
	})
	t.Run("never synced", func(t *testing.T) {
		n := newNode(t, podsOnly)
		n.seed(t)
		n.run(t, io.Discard)
		code, body := n.get(t, "/readyz")
		require.Equal(t, 503, code)
		require.Contains(t, body, "[+]pods ok")
		require.Contains(t, body, "[-]widgets.example.com failed: never synced\n")
	})
}

// manager is systemd's end of the notify socket. It always reads, as systemd does.
type manager struct{ came chan string }

func notified(t *testing.T) manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // a short path
	require.NoError(t, err)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/s", Net: "unixgram"})
	require.NoError(t, err)
	t.Setenv("NOTIFY_SOCKET", dir+"/s")
	m := manager{make(chan string, 10_000)}
	go func() {
		defer close(m.came)
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			m.came <- string(b[:n])
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		for range m.came { // until the reader has ended
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return m
}

// next waits for a message for which ok returns true, and returns it and all messages before it.
func (m manager) next(t *testing.T, what string, ok func(string) bool) (all []string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case s := <-m.came:
			all = append(all, s)
			if ok(s) {
				return all
			}
		case <-timeout:
			t.Fatalf("%s: not among %q", what, all)
		}
	}
}

// TestSystemdReady checks that READY=1 is sent as soon as the cache can be read or, if configured, not
// before all collections are caught up, which they never are without a server. Until then the agent
// asks systemd for more time.
func TestSystemdReady(t *testing.T) {
	isReady := func(s string) bool { return s == "READY=1" }
	t.Run("readable", func(t *testing.T) {
		systemd := notified(t)
		n := newNode(t, "resources: [{resource: pods}]")
		n.seed(t)
		n.run(t, io.Discard)
		systemd.next(t, "ready", isReady)
	})
	t.Run("caught up", func(t *testing.T) {
		systemd := notified(t)
		n := newNode(t, "resources: [{resource: pods}]\nhealth: {readyWhen: caughtUp}")
		n.seed(t)
		_, stop := n.run(t, io.Discard)
		waiting := 0
		before := systemd.next(t, "waiting", func(s string) bool {
			if s == "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=waiting until caught up: pods" {
				waiting++
			}
			return waiting == 2
		})
		require.NotContains(t, before, "READY=1")
		require.NoError(t, stop())
		after := systemd.next(t, "stopping", func(s string) bool { return s == "STOPPING=1\nSTATUS=storing the last changes" })
		require.NotContains(t, after, "READY=1")
	})
}
