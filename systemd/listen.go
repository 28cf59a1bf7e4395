package systemd

import (
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// Listener returns the socket that systemd listens on for the service (snapcache.socket), or nil if
// there is none. A process receives its sockets once: a second call, and a child process, get none.
// The socket's file is systemd's, and remains when the listener is closed.
func Listener() (net.Listener, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // no socket is not an error
	}
	for _, f := range files {
		defer func() { _ = f.Close() }() // the listener has a copy
	}
	if len(files) > 1 {
		return nil, fmt.Errorf("systemd passed %d sockets: keep one ListenStream= in snapcache.socket", len(files))
	}
	listener, err := net.FileListener(files[0])
	if err != nil {
		return nil, fmt.Errorf("the socket passed by systemd: %w: snapcache.socket needs ListenStream= with a path", err)
	}
	if listener.Addr().Network() != "unix" {
		_ = listener.Close()
		return nil, fmt.Errorf("systemd passed a socket on %s: the cache is served only on a unix socket", listener.Addr())
	}
	return listener, nil
}
