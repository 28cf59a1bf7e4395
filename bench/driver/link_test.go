package driver

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLink checks that a link limits its rate, and that its end closes connections that are still open.
func TestLink(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 50_000))
	}))
	defer s.Close()
	k, err := newLink(s.Listener.Addr().String(), 8*500_000)
	require.NoError(t, err)
	began := time.Now()
	answer, err := http.Get("http://" + k.address())
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Len(t, body, 50_000)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	conn, err := net.Dial("tcp", k.address())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, k.close())
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	http.DefaultClient.CloseIdleConnections()
}
