package kubeapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// nobody is another user of this machine than the one that runs the tests.
const nobody = 65534

// TestHeldConnections: what a process of this machine opens at a listener, with credentials or without, takes
// a bounded number of connections and bytes, and no place of another user's.
func TestHeldConnections(t *testing.T) {
	v := newVault(t)
	v.account(t, "reader", "", readRules...)
	v.account(t, "watching", mine, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"watch"}})
	reader, watching := v.token(t, "reader", nil), v.token(t, "watching", nil)
	v.confine(t)
	require.NoError(t, os.Chmod(v.dir, 0o711)) //nolint:gosec // the other user gets to the sockets
	local, socket := filepath.Join(v.dir, "local.sock"), filepath.Join(v.dir, "kube.sock")
	for _, path := range []string{local, socket} {
		require.NoError(t, os.Chmod(path, 0o666)) //nolint:gosec // the same
	}
	getAs := func(ctx context.Context, network, address, url, token string) error {
		transport := &http.Transport{TLSClientConfig: v.tls.Clone(), DisableKeepAlives: true}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		err := answered(ctx, &http.Client{Transport: transport}, url, token)
		// Without another user the connection may be closed for a newer one of the same.
		for range 20 {
			if err == nil || os.Getuid() == 0 {
				break
			}
			err = answered(ctx, &http.Client{Transport: transport}, url, token)
		}
		return err
	}
	// Each client is a new one for each request.
	api := func(ctx context.Context) error {
		return getAs(ctx, "tcp", v.address, "https://"+v.address+secrets, reader)
	}
	metrics := func(ctx context.Context) error {
		return getAs(ctx, "tcp", v.metrics, "http://"+v.metrics+"/metrics", "")
	}
	locally := func(ctx context.Context) error { return getAs(ctx, "unix", local, "http://localhost/readyz", "") }
	atSocket := func(ctx context.Context) error { return getAs(ctx, "unix", socket, "http://localhost"+secrets, "") }

	plain := func(text string) func(net.Conn) error {
		return func(c net.Conn) error {
			_, err := io.WriteString(c, text)
			return err
		}
	}
	unread := func(text string) func(net.Conn) error {
		return func(c net.Conn) error {
			_ = c.(*net.TCPConn).SetReadBuffer(4096) // the kernel may take more
			return plain(text)(c)
		}
	}
	begun := func(text string) func(net.Conn) error { // the answer has begun
		return func(c net.Conn) error {
			if err := plain(text)(c); err != nil {
				return err
			}
			_, err := c.Read(make([]byte, 1))
			return err
		}
	}
	overTLS := func(send func(net.Conn) error) func(net.Conn) error {
		config := v.tls.Clone()
		config.NextProtos, config.ServerName = []string{"http/1.1"}, "127.0.0.1"
		return func(c net.Conn) error { return send(tls.Client(c, config)) }
	}
	halfHeader := "GET /api HTTP/1.1\r\nX: " + strings.Repeat("x", 60<<10)
	halfBody := "POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx"
	watch := "GET /api/v1/namespaces/" + mine + "/configmaps?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + watching + "\r\n\r\n"
	scrapes := strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 20)
	for _, tc := range []struct {
		name             string
		network, address string
		connections      int
		send             func(net.Conn) error // nil for nothing
		served           func(context.Context) error
	}{
		{"API, nothing", "tcp", v.address, 15_000, nil, api},
		{"API, half a header of 60 KB", "tcp", v.address, 1000, overTLS(plain(halfHeader)), api},
		{"API, half a body without credentials", "tcp", v.address, 1000, overTLS(plain(halfBody)), api},
		{"API, a watch", "tcp", v.address, 1000, overTLS(begun(watch)), api},
		{"metrics, nothing", "tcp", v.metrics, 15_000, nil, metrics},
		{"metrics, 20 scrapes that are not read", "tcp", v.metrics, 2000, unread(scrapes), metrics},
		{"local API, nothing", "unix", local, 4000, nil, locally}, // for more at once, connect(2) fails
		{"local API, half a body", "unix", local, 1000, plain(halfBody), locally},
		{"socket of the API, a watch", "unix", socket, 1000, begun(watch), atSocket},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v.beside(t, tc.served, func(t *testing.T, held func()) {
				began := time.Now()
				var all []net.Conn
				defer func() {
					for _, c := range all {
						_ = c.Close() // the agent may have closed it
					}
				}()
				cut := 0
				for _, n := range []int{tc.connections, 10} { // the latter take the places that the other client leaves
					opened := harness.DialAs(t, nobody, tc.network, tc.address, n)
					all = append(all, opened...)
					for _, c := range opened {
						if tc.send == nil {
							continue
						}
						require.NoError(t, c.SetDeadline(time.Now().Add(5*time.Second)))
						if tc.send(c) != nil {
							cut++
						}
						require.NoError(t, c.SetDeadline(time.Time{}))
					}
				}
				held()
				files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", v.agent.Cmd.Process.Pid))
				require.NoError(t, err)
				t.Logf("%d connections in %v, %d of them cut at once; the agent has %d files open", len(all), time.Since(began), cut, len(files))
				require.Less(t, len(files), 800, "those of one listener, and some besides")
			})
		})
	}
	require.Eventually(t, func() bool { return v.served().watches == 0 }, patience, pollEvery, "nothing is left behind")
}
