package systemd

import (
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// Socket returns the socket that systemd listens on for the service (snapcache.socket), or nil if
// there is none. A process receives its sockets once: a second call, and a child process, get none.
func Socket() (*os.File, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // no socket is not an error
	}
	if len(files) > 1 {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("systemd passed %d sockets: keep one ListenStream= in snapcache.socket", len(files))
	}
	return files[0], nil
}

// Listen returns a listener on the socket that systemd passed, which stays open. Its file is systemd's, and
// remains when the listener is closed.
func Listen(socket *os.File) (net.Listener, error) {
	listener, err := net.FileListener(socket)
	if err != nil {
		return nil, fmt.Errorf("the socket passed by systemd: %w: snapcache.socket needs ListenStream= with a path", err)
	}
	if listener.Addr().Network() != "unix" {
		_ = listener.Close()
		return nil, fmt.Errorf("systemd passed a socket on %s: the cache is served only on a unix socket", listener.Addr())
	}
	return listener, nil
}
