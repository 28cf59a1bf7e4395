package network

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// accepted connects to a listener with connect, and returns both ends.
func accepted(t *testing.T, network, address string, connect func(l net.Addr) net.Conn) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skipf("this machine has no %s: %v", address, err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	client = connect(l.Addr())
	server, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	t.Cleanup(func() { _ = client.Close() })
	return client, server
}

func dial(t *testing.T, a net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial(a.Network(), a.String())
	require.NoError(t, err)
	return c
}

// requireDiag skips a test where the kernel has no sock_diag(7), as the one that qemu's user mode emulates.
func requireDiag(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EPFNOSUPPORT) {
		t.Skipf("no sock_diag: %v", err)
	}
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
}

func TestUserOf(t *testing.T) {
	own := uint32(os.Getuid()) //nolint:gosec // an id of Linux
	for _, tc := range []struct{ name, network, address, at string }{
		{"IPv4", "tcp", "127.0.0.1:0", "127.0.0.1"},
		{"IPv6", "tcp", "[::1]:0", "::1"},
		{"IPv4 at a listener of both", "tcp", ":0", "127.0.0.1"},
		{"a unix socket", "unix", filepath.Join(t.TempDir(), "s"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.network == "tcp" {
				requireDiag(t)
			}
			client, server := accepted(t, tc.network, tc.address, func(a net.Addr) net.Conn {
				if a, ok := a.(*net.TCPAddr); ok {
					return dial(t, &net.TCPAddr{IP: net.ParseIP(tc.at), Port: a.Port})
				}
				return dial(t, a)
			})
			uid, ok := UserOf(server)
			require.True(t, ok)
			require.Equal(t, own, uid)
			require.NoError(t, client.Close())
			if _, ok := UserOf(server); tc.network == "tcp" {
				require.False(t, ok, "the user of a socket that is closed counts as root for the kernel")
			}
		})
	}
	one, other := net.Pipe()
	_, ok := UserOf(one)
	require.False(t, ok)
	require.NoError(t, one.Close())
	require.NoError(t, other.Close())
}

// TestUserOf_OtherUser connects as another user.
func TestUserOf_OtherUser(t *testing.T) {
	const nobody = 65534
	if os.Getuid() != 0 {
		t.Skip("sockets of another user need root")
	}
	requireDiag(t)
	_, server := accepted(t, "tcp", "127.0.0.1:0", func(a net.Addr) (c net.Conn) {
		connected := make(chan error)
		go func() {
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			err := unix.Setfsuid(nobody)
			if err == nil {
				c, err = net.Dial(a.Network(), a.String())
			}
			connected <- err
		}()
		require.NoError(t, <-connected)
		return c
	})
	uid, ok := UserOf(server)
	require.True(t, ok)
	require.EqualValues(t, nobody, uid)
}
