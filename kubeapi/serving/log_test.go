package serving

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/logging"
	"github.com/snapcache/snapcache/internal/logging/logtest"
)

// TestConnectionLog: connections without a handshake leave a few lines in the log of an agent, and not one
// each.
func TestConnectionLog(t *testing.T) {
	var logged logtest.Buffer
	c, _ := ensureAt(t, t.TempDir(), now)
	l, err := c.Listen("127.0.0.1:0", Files{}, nil)
	require.NoError(t, err)
	s := NewServer(pods, slog.New(logging.RateLimit(slog.NewTextHandler(&logged, nil))))
	run(t, s, l)
	for range 100 {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = conn.Write([]byte("no handshake\r\n\r\n"))
		require.NoError(t, err)
		_, _ = bytes.NewBuffer(nil).ReadFrom(conn) // until the server ends it
		require.NoError(t, conn.Close())
	}
	lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
	require.Len(t, lines, 10)
	require.Contains(t, lines[0], `msg="http: TLS handshake error" client="127.0.0.1:`)
}
