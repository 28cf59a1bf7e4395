package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store/bolt"
)

const serveDescription = `Serves a snapshot or a database file as a read-only Kubernetes API, until it is
interrupted: for kubectl, k9s and every other client. The file is not changed. No agent
can have it open meanwhile: a running agent serves the same API on its socket.

   snapcache serve --from 20260304T050607.000Z
   snapcache serve --from copy-of-cache.db --address 127.0.0.1:8001
   snapcache serve --from seed.snap --socket /run/user/1000/seed.sock
   kubectl --server http://127.0.0.1:8001 get pods -A

There is no TLS and no authentication on --address: every user of this machine can
read what is served. The socket is for this user alone.`

// shutdownTimeout limits how long requests may continue after the interrupt.
const shutdownTimeout = 2 * time.Second

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:        "serve",
		Usage:       "serve a snapshot or a database file as a Kubernetes API",
		UsageText:   "snapcache serve --from SNAPSHOT|FILE [--address HOST:PORT] [--socket PATH]",
		Description: serveDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: fromFlag, Usage: "serve this `SNAPSHOT` or database file", TakesFile: true},
			&cli.StringFlag{Name: addressFlag, Usage: "listen on `HOST:PORT`; default: a free port of 127.0.0.1, or none with --socket"},
			&cli.StringFlag{Name: socketFlag, Usage: "listen on this `PATH`", TakesFile: true},
			configFileFlag(), encryptionFlag(),
		},
		Action: atMost(0, serveFile),
	}
}

func serveFile(c *cli.Context) error {
	ctx, stop := interruptible(c.Context)
	defer stop()
	l, err := openServed(ctx, c)
	if err != nil {
		return err
	}
	defer l.close()
	handler, err := apiHandler(l.kept)
	if err != nil {
		return err
	}
	address, socket := c.String(addressFlag), c.String(socketFlag)
	var listeners []net.Listener
	if socket != "" {
		listener, err := serving.ListenUnix(socket)
		if err != nil {
			return err
		}
		listeners = append(listeners, listener)
	}
	if address != "" || socket == "" {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(address, "127.0.0.1:0"))
		if err != nil {
			for _, other := range listeners {
				err = errors.Join(err, other.Close())
			}
			return err
		}
		listeners = append(listeners, listener)
	}
	if err := writeStrings(c.App.ErrWriter, usageOf(listeners)); err != nil {
		return err
	}
	return serveOn(ctx, serving.NewServer(handler, slog.New(slog.NewTextHandler(c.App.ErrWriter, nil))), listeners)
}

// openServed opens the snapshot or the database file of --from, until the lookup is closed.
func openServed(ctx context.Context, c *cli.Context) (*lookup, error) {
	if c.String(fromFlag) == "" {
		return nil, usagef("--from is needed: a snapshot or a database file")
	}
	cfg, err := loadConfig(c)
	if err != nil {
		return nil, err
	}
	dir := snapshot.Dir{Path: cfg.Snapshots.Dir}
	l := &lookup{from: dir.Find(c.String(fromFlag)), keys: func() (bolt.Keyring, error) { return readKeys(c) }}
	_, _, err = l.open(ctx)
	if errors.Is(err, snapshot.ErrForeign) {
		l = &lookup{db: l.from, onlyFile: true, keys: l.keys}
		_, _, err = l.open(ctx)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// usageOf returns how clients use the listeners.
func usageOf(listeners []net.Listener) (text string) {
	for _, l := range listeners {
		if a := l.Addr(); a.Network() == "unix" {
			text += fmt.Sprintf("serving on %s:\n  snapcache get all -A --socket %[1]s\n  curl --unix-socket %[1]s http://localhost/api\n", a)
		} else {
			text += fmt.Sprintf("serving on http://%s:\n  kubectl --server http://%[1]s get all -A\n", a)
		}
	}
	return text + "Ctrl-C ends it.\n"
}

// serveOn serves on all listeners until ctx ends, and closes them.
func serveOn(ctx context.Context, server *http.Server, listeners []net.Listener) error {
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- server.Serve(l) }()
	}
	var err error
	left := len(listeners)
	select {
	case <-ctx.Done():
	case err = <-failed:
		left--
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(limited) != nil {
		err = errors.Join(err, server.Close())
	}
	for range left {
		if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
