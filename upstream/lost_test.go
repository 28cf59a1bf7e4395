package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// failing is a connection whose writes can be made to fail, as after a reset that has not been read yet.
type failing struct {
	net.Conn
	broken *atomic.Bool
}

func (c failing) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	return c.Conn.Write(p)
}

// TestLostConnection ends the connection of an answer under way in each way that HTTP/2 tells apart. All are a
// connection that broke.
func TestLostConnection(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(server *httptest.Server, c *http.Client, conn *failing)
		text string
	}{
		{"by the server", func(server *httptest.Server, _ *http.Client, _ *failing) { server.CloseClientConnections() }, ""},
		{"here", func(_ *httptest.Server, _ *http.Client, conn *failing) { _ = conn.Close() }, "closed"},
		{"found by another request", func(server *httptest.Server, c *http.Client, conn *failing) {
			conn.broken.Store(true)
			_, err := c.Get(server.URL) //nolint:bodyclose,noctx // there is none
			require.Equal(t, Unreachable, Classify(err), "%v", err)
		}, "force closed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			done := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, `{"kind":"PodList","items":[`)
				_ = http.NewResponseController(w).Flush()
				select {
				case <-done:
				case <-r.Context().Done():
				}
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			defer close(done)
			var conn *failing
			transport, err := rest.TransportFor(&rest.Config{
				Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
				Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					c, err := (&net.Dialer{}).DialContext(ctx, network, address)
					if conn == nil && err == nil {
						conn = &failing{c, new(atomic.Bool)}
						return conn, nil
					}
					return nil, errors.Join(err, syscall.ECONNREFUSED)
				},
			})
			require.NoError(t, err)
			client := &http.Client{Transport: transport}
			resp, err := client.Get(server.URL) //nolint:noctx // it ends with the test
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, 2, resp.ProtoMajor)
			tc.end(server, client, conn)
			_, err = io.ReadAll(resp.Body)
			require.ErrorContains(t, err, tc.text)
			require.Equal(t, Unreachable, Classify(err), "%v", err)
		})
	}
	for _, text := range []string{ // of net/http, which exports none
		"http2: client connection lost", "http2: client conn is closed", "http2: client conn not usable",
		"http2: client conn could not be established", "http2: Transport received Server's graceful shutdown GOAWAY",
	} {
		require.Equal(t, Unreachable, Classify(errors.New(text)), text)
		require.Contains(t, Describe(errors.New(text)), strings.TrimPrefix(text, "http2: "))
	}
}
