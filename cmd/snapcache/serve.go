package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/cmd/snapcache/internal/bundle"
	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const serveDescription = `Serves a snapshot, a database file or a support bundle of Troubleshoot (troubleshoot.sh)
as a read-only Kubernetes API, until it is interrupted: for kubectl and other clients that
read. The file is not changed. No agent can have it open meanwhile: a running agent serves
the same API on its socket. The objects of a bundle go to a temporary file ($TMPDIR); a
file in the bundle that can't be read is named in a warning, and the rest is served.
Ctrl-C ends the loading, too.

   snapcache serve --from 20260304T050607.000Z
   snapcache serve --from copy-of-cache.db --address 127.0.0.1:8001
   snapcache serve --from support-bundle-2026-03-04T05_06_07.tar.gz
   snapcache serve --from seed.snap --socket /run/user/1000/seed.sock

It prints how to reach it. --address has TLS and a token; both are in a kubeconfig for
this user alone, which is deleted at the end. So is the socket.`

// shutdownTimeout limits how long requests may continue after the interrupt.
const shutdownTimeout = 2 * time.Second

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:        "serve",
		Usage:       "serve a snapshot, a database file or a support bundle as a Kubernetes API",
		UsageText:   "snapcache serve --from SNAPSHOT|FILE [--address HOST:PORT] [--socket PATH]",
		Description: serveDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: fromFlag, Usage: "serve this `SNAPSHOT`, database file or support bundle", TakesFile: true},
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
	db, err := openServed(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // opened for reading
	handler, err := apiHandler(db)
	if err != nil {
		return err
	}
	handler = serving.NewUsers(nil).Limit(handler)
	address, socket := c.String(addressFlag), c.String(socketFlag)
	servers := map[net.Listener]*http.Server{}
	defer func() {
		for listener := range servers {
			_ = listener.Close() // closed already, unless the next one failed
		}
	}()
	log := slog.New(slog.NewTextHandler(c.App.ErrWriter, nil))
	if socket != "" {
		listener, err := serving.ListenUnix(socket)
		if err != nil {
			return err
		}
		servers[listener] = serving.NewBodyServer(serving.Local(handler), log)
	}
	kubeconfig := ""
	if address != "" || socket == "" {
		dir, err := os.MkdirTemp("", "snapcache-serve-*")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }() // it is this process's alone
		credentials, err := serving.Ensure(dir, time.Now(), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		listener, err := credentials.Listen(cmp.Or(address, "127.0.0.1:0"), serving.Files{}, nil)
		if err != nil {
			return err
		}
		servers[listener] = serving.NewBodyServer(serving.Authenticate(access.NewAuthenticator(access.AuthenticatorOptions{Token: credentials.Token}), handler), log)
		if kubeconfig, err = writeKubeconfig(dir, listener.Addr().String()); err != nil {
			return err
		}
	}
	if err := writeStrings(c.App.ErrWriter, usageOf(socket, kubeconfig)); err != nil {
		return err
	}
	return serveAll(ctx, servers)
}

func writeKubeconfig(dir, address string) (path string, err error) {
	ca, token, err := serving.Read(dir)
	if err != nil {
		return "", err
	}
	b, err := serving.Kubeconfig(address, ca, &clientcmdapi.AuthInfo{Token: token})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "kubeconfig")
	return path, files.WriteAtomic(path, b)
}

func openServed(ctx context.Context, c *cli.Context) (store.DB, error) {
	if c.String(fromFlag) == "" {
		return nil, usagef("--from is needed: a snapshot, a database file or a support bundle")
	}
	cfg, err := loadConfig(c)
	if err != nil {
		return nil, err
	}
	dir := snapshot.Dir{Path: cfg.Snapshots.Dir}
	l := &lookup{from: dir.Find(c.String(fromFlag)), keys: func() (bolt.Keyring, error) { return readKeys(c) }}
	if bundle.Is(l.from) {
		return openBundle(ctx, l.from, c.App.ErrWriter)
	}
	_, _, err = l.open(ctx)
	if errors.Is(err, snapshot.ErrForeign) {
		l = &lookup{db: l.from, onlyFile: true, keys: l.keys}
		_, _, err = l.open(ctx)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l.kept, nil
}

// openBundle reads a bundle, with a line on stderr for each file that is missing or cut off.
func openBundle(ctx context.Context, file string, stderr io.Writer) (store.DB, error) {
	ctx, progress, done := newProgress(ctx)
	defer done()
	return bundle.Open(ctx, file, bundle.Options{
		Progress: func(read, total int64) { progress.step(snapshot.StepRead, read, total) },
		Warn: func(text string) {
			progress.clear()
			_, _ = fmt.Fprintf(stderr, "snapcache: warning: %s: %s\n", file, text) // there is no other place to report it
		},
	})
}

func usageOf(socket, kubeconfig string) (text string) {
	if socket != "" {
		text = fmt.Sprintf("serving on %s:\n  snapcache get all -A --socket %[1]s\n  curl --unix-socket %[1]s http://localhost/api\n", socket)
	}
	if kubeconfig != "" {
		text += fmt.Sprintf("serving for kubectl:\n  kubectl --kubeconfig %s get all -A\n", kubeconfig)
	}
	return text + "Ctrl-C ends it.\n"
}

// serveAll serves until ctx ends or a listener fails, and closes all of them.
func serveAll(ctx context.Context, servers map[net.Listener]*http.Server) error {
	group, ctx := errgroup.WithContext(ctx)
	for listener, server := range servers {
		group.Go(func() error {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		group.Go(func() error {
			<-ctx.Done()
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
			defer cancel()
			if server.Shutdown(limited) != nil {
				return server.Close()
			}
			return nil
		})
	}
	return group.Wait()
}
