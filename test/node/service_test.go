package node

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// journal checks that log lines reach the journal with their fields and priorities.
func (x *site) journal(t *testing.T) {
	line := x.logged(t, "SNAPCACHE_COLLECTION=configmaps@shop", "SNAPCACHE_REASON=initial")
	require.Contains(t, line["MESSAGE"], "listed")
	require.Regexp(t, "^[1-9][0-9]*$", line["SNAPCACHE_RV"])
	require.Equal(t, "6", line["PRIORITY"])
	require.Equal(t, "snapcache.service", line["_SYSTEMD_UNIT"])
}

// logged returns the newest line of the service's journal that has these fields.
func (x *site) logged(t *testing.T, fields ...string) (line map[string]any) {
	t.Helper()
	out := x.run(t, append([]string{"journalctl", "--no-pager", "-o", "json", "-u", "snapcache"}, fields...)...)
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		line = nil
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), "%s", lines.Text())
	}
	require.NotEmpty(t, line, "nothing in the journal has %v", fields)
	return line
}

// connections checks that the service distinguishes the users of the node: one who opens more connections than
// there is room for closes no other's.
func (x *site) connections(t *testing.T) {
	address := harness.FreeAddress(t)
	x.write(t, configPath, strings.Replace(agentConfig, "disabled: true", "address: "+address, 1), 0o644)
	x.run(t, "systemctl", "restart", "snapcache")
	x.requireResumed(t)
	get := func(c net.Conn) (int, error) {
		if _, err := fmt.Fprintf(c, "GET /readyz HTTP/1.1\r\nHost: %s\r\n\r\n", address); err != nil {
			return 0, err
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, err
	}
	uid := func(user string) int {
		t.Helper()
		id, err := strconv.Atoi(x.run(t, "id", "-u", user))
		require.NoError(t, err)
		return id
	}
	alices := harness.DialAs(t, uid("alice"), "tcp", address, 1)[0]
	defer alices.Close()
	code, err := get(alices)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
	for _, c := range harness.DialAs(t, uid("mallory"), "tcp", address, 1000) {
		defer c.Close()
	}
	code, err = get(alices)
	require.NoError(t, err, "the connection that was there first")
	require.Equal(t, http.StatusOK, code)
	x.write(t, configPath, agentConfig, 0o644)
	x.run(t, "systemctl", "restart", "snapcache")
	x.requireResumed(t)
}

// snapshots runs the timer's unit, which makes a snapshot while the service runs.
func (x *site) snapshots(t *testing.T) {
	x.run(t, "systemctl", "enable", "--now", "snapcache-snapshot.timer")
	require.Contains(t, x.run(t, "systemctl", "list-timers", "--no-pager", "--all"), "snapcache-snapshot.service")
	x.run(t, "systemctl", "start", "snapcache-snapshot.service") // returns when the unit has finished
	require.Equal(t, "success", x.run(t, "systemctl", "show", "-P", "Result", "snapcache-snapshot.service"))
	var list []struct {
		Name string `json:"name"`
	}
	out := x.run(t, "snapcache", "snapshot", "list", "-o", "json", "--config", configPath)
	require.NoError(t, json.Unmarshal([]byte(out), &list), "%s", out)
	require.Len(t, list, 1)
	x.run(t, "snapcache", "snapshot", "verify", "--config", configPath)
	x.run(t, "systemctl", "disable", "--now", "snapcache-snapshot.timer")
}

// key has the service encrypt its file with a credential that only root can read, and decrypt it
// again.
func (x *site) key(t *testing.T) {
	database := filepath.Join(x.dir, "/var/lib/snapcache/cache.db")
	inClear := func() bool {
		raw := harness.ReadFile(t, database)
		return strings.Contains(string(raw), `"resource":"configmaps"`) // a value; names are always in clear
	}
	require.True(t, inClear(), "or the rest proves nothing")

	key := make([]byte, 32)
	_, err := rand.Read(key)
	require.NoError(t, err)
	const credential = "/etc/credstore/snapcache.key"
	x.run(t, "mkdir", "-p", filepath.Dir(credential))
	x.write(t, credential, base64.StdEncoding.EncodeToString(key)+"\n", 0o600)
	x.write(t, configPath, agentConfig+"encryption:\n  keyFile: snapcache.key\n", 0o644)
	x.run(t, "systemctl", "restart", "snapcache")
	x.await(t, "the file is rewritten with the key", func() bool { return x.status(t).Store.EncryptionKey != "" && !inClear() })
	x.run(t, "systemctl", "restart", "snapcache")
	x.requireResumed(t)
	require.Equal(t, wanted, x.dumped(t))

	x.write(t, configPath, agentConfig+"encryption:\n  oldKeyFiles: [snapcache.key]\n", 0o644)
	x.run(t, "systemctl", "restart", "snapcache")
	x.await(t, "the file is in clear again", func() bool { return x.status(t).Store.EncryptionKey == "" && inClear() })
	x.write(t, configPath, agentConfig, 0o644)
	x.run(t, "rm", credential)
	x.run(t, "systemctl", "restart", "snapcache")
	x.requireResumed(t)
}
