package systemd

import (
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// Listener returns the socket that systemd listens on for the service (snapcache.socket), nil where there
// is none. A service is given its sockets once: whoever asks again, or is started by this process, gets
// none. The socket's file is systemd's, and stays when the listener is closed.
func Listener() (net.Listener, error) {
	files := activation.Files(true)
	switch len(files) {
	case 0:
		return nil, nil //nolint:nilnil // no socket is no error
	case 1:
	default:
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("systemd gave %d sockets: leave one ListenStream= in snapcache.socket", len(files))
	}
	listener, err := net.FileListener(files[0])
	_ = files[0].Close() // the listener has a copy
	if err != nil {
		return nil, fmt.Errorf("the socket that systemd gave: %w: it has to be ListenStream= with a path", err)
	}
	if listener.Addr().Network() != "unix" {
		_ = listener.Close()
		return nil, fmt.Errorf("systemd gave a socket on %s: what is cached is served on a unix socket only", listener.Addr())
	}
	return listener, nil
}
