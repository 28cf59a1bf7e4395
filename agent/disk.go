package agent

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/snapcache/snapcache/agent/internal/database"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/restore"
)

// openStore opens the database. A file on a disk that takes no writes is opened for reading. If there is
// no usable file, the database is in memory until one can be made.
func (a *Agent) openStore(ctx context.Context) error {
	if a.config().Store.Type == config.StoreMemory {
		return a.use(database.InMemory(nil))
	}
	err := a.openFile(ctx, a.use)
	if files.RefusesWrites(err) {
		err = database.WithDropIn(err, a.config().Store.Path)
		a.log.Error("the disk takes no writes, and has no database to read: the cache is in memory until it does", "error", err)
		return a.use(database.InMemory(err))
	}
	return openError(err)
}

// openFile opens the configured file, and calls use with it.
func (a *Agent) openFile(ctx context.Context, use func(*database.Database) error) (err error) {
	from := restore.Sources{Seed: a.config().Restore.File(), Snapshots: a.snapshotDir()}
	a.extended(func() { err = a.opener.Open(ctx, a.config().Store.Path, from, use) })
	return err
}

// errMoves ends an agent whose database moves to a file, with which the next one goes on.
var errMoves = errors.New("the database moves to a file")

// awaitDisk makes the next agent once the disk takes writes, and then returns errMoves. It returns nil when
// ctx ends.
func (a *Agent) awaitDisk(ctx context.Context) error {
	backoff := sleep.Backoff(5*time.Second, 2*time.Minute, 0)
	for sleep.For(ctx, a.clock, backoff.Step()) == nil {
		next, err := newAgent(a.config(), a.opts)
		if err == nil {
			if err = next.openFile(ctx, func(d *database.Database) error { next.db = d; return nil }); err == nil {
				a.next = next
				return errMoves
			}
			next.cluster.Close()
		}
		if !files.RefusesWrites(err) && ctx.Err() == nil {
			a.log.Error("the disk takes writes, but the agent can't go on with a file; retrying", "error", openError(err))
		}
	}
	return nil
}

// take copies the collections of a database in memory to the agent's file, and opens those that are configured.
// If it fails, the file is closed.
func (a *Agent) take(from *database.Database) (err error) {
	a.extended(func() {
		if err := database.Copy(a.db, from); err != nil {
			a.log.Error("a collection could not be copied from memory to the file; it is listed again", "error", err)
		}
		err = a.use(a.db)
	})
	if err != nil {
		return errors.Join(err, a.close())
	}
	a.log.Info("the disk takes writes: the cache is in a file now", "path", a.config().Store.Path)
	return nil
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
		a.log.Error("the socket can't be made; trying again", "wait", listenRetry, "error", database.WithDropIn(err, a.config().LocalAPI.Socket))
		return a.lateSocket, nil, nil
	}
	return a.serveLocal(listener), listener, err
}
