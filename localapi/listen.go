package localapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// dialTimeout is how long a socket's owner may take to accept a connection.
const dialTimeout = 2 * time.Second

// Listen listens on a unix socket that only this user can connect to. It creates
// the parent directory for this user only. A socket that was left behind by a
// process that is gone is replaced; where an agent answers, the error is
// [ErrSocketTaken]; anything else at path is left alone. Closing the listener
// removes the socket.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("socket %s: create its directory: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		// On Linux the file gets the mode of the socket, so that nobody else can
		// connect between here and the Chmod below. Elsewhere this has no effect.
		return conn.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), listener.Close())
	}
	return listener, nil
}

// removeStale removes a socket on which nobody listens.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("socket %s: %w", path, err)
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("socket %s: a file of another kind is there: move it away or configure another path", path)
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%w on %s: stop it, or configure another socket and database", ErrSocketTaken, path), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w on %s, if slowly: stop it, or configure another socket and database", ErrSocketTaken, path)
	default:
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket %s: remove what a stopped agent left: %w", path, err)
	}
	return nil
}
