package files

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

// ErrSocketTaken means that an agent already listens on a socket.
var ErrSocketTaken = errors.New("another agent answers")

// dialTimeout limits how long a socket's owner may take to accept a connection.
const dialTimeout = 2 * time.Second

// ListenUnix listens on a unix socket that only this user can connect to, and creates its directory for
// this user only. A socket left behind by an ended process is replaced. If an agent answers, the
// error is [ErrSocketTaken]; any other file at path is left unchanged. Closing the listener removes
// the socket.
func ListenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("socket %s: create its directory: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error { return conn.Control(restrict) }}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), listener.Close())
	}
	return listener, nil
}

// removeStale removes a socket that no process listens on.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("socket %s: %w", path, err)
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("socket %s: the file there is not a socket: move it away or configure another path", path)
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%w on %s: stop it, or configure another socket and database", ErrSocketTaken, path), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w on %s, but slowly: stop it, or configure another socket and database", ErrSocketTaken, path)
	default:
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket %s: remove the socket of a stopped agent: %w", path, err)
	}
	return nil
}
