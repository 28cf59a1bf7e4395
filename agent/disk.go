package agent

import (
	"context"
	"net"
	"path/filepath"
	"time"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/systemd"
)

// awaitStore opens the database. A file on a disk that takes no writes is opened for reading. Only if
// there is no usable file, it waits until one can be made, and reports that in the log and to systemd.
func (a *Agent) awaitStore(ctx context.Context) error {
	// The longest pause is less than the time that a notification asks systemd for.
	backoff := sleep.Backoff(time.Second, 20*time.Second, 0)
	for {
		var err error
		a.extended(func() { err = a.openStore(ctx) })
		if err == nil || !files.RefusesWrites(err) {
			return err
		}
		path := a.config().Store.Path
		err = withDropIn(err, path)
		d := backoff.Step()
		a.log.Error("the disk takes no writes, and has no database to read; retrying", "path", path, "wait", d, "error", err)
		a.tell(systemd.Starting("waiting for a disk that takes writes: " + err.Error()))
		if err := sleep.For(ctx, a.clock, d); err != nil {
			return err
		}
	}
}

// withDropIn adds the next step to the error of a path that the service's unit makes read-only.
func withDropIn(err error, path string) error {
	if hint := systemd.ReadOnlyHint(err, filepath.Dir(path)); hint != "" {
		return &store.Error{Err: err, Hint: hint}
	}
	return err
}

// listenRetry is the pause between two tries to make the socket.
const listenRetry = 10 * time.Second

// lateSocket serves the socket once its directory takes one: until then the cache is served elsewhere.
func (a *Agent) lateSocket(ctx context.Context) error {
	for sleep.For(ctx, a.clock, listenRetry) == nil {
		listener, err := files.ListenUnix(a.config().LocalAPI.Socket)
		if err == nil {
			a.log.Info("the socket is served now", "socket", listener.Addr().String())
			return a.serveLocal(listener)(ctx)
		}
		if !files.RefusesWrites(err) {
			return err
		}
	}
	return nil
}

// openSocket returns the server of the socket, and the listener, nil if its directory takes none yet.
func (a *Agent) openSocket() (serve func(context.Context) error, listener net.Listener, err error) {
	listener, err = a.listen()
	if files.RefusesWrites(err) {
		a.log.Error("the socket can't be made; trying again", "wait", listenRetry, "error", withDropIn(err, a.config().LocalAPI.Socket))
		return a.lateSocket, nil, nil
	}
	return a.serveLocal(listener), listener, err
}
