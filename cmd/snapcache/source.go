package main

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

	"github.com/urfave/cli/v2"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// answerTimeout limits how long an agent may take to return its status. That takes milliseconds; an
// agent that is stopped or stuck does not answer at all.
const answerTimeout = 5 * time.Second

// startTimeout limits the wait for an agent that has the database open and does not answer yet, or no
// longer: it starts or stops.
const (
	startTimeout = 2 * time.Second
	startPoll    = 50 * time.Millisecond
)

// lookup is where a reading command finds the cache: a socket, else a file. An empty path is skipped.
type lookup struct {
	socket, db string

	// onlyFile is set if the options name a file and no socket: another agent would answer for
	// another cache. socketFallback is the socket of the agent that may have the file open.
	onlyFile       bool
	socketFallback string

	// from is the path of a snapshot to read instead.
	from string

	// answered is the socket of the agent that returned its status.
	answered string

	// kept is the open database of a file or a snapshot; nil for none.
	kept *bolt.DB

	// keys returns the keys that open a file.
	keys func() (bolt.Keyring, error)
}

func newLookup(c *cli.Context) (*lookup, error) {
	cfg, err := loadConfig(c)
	if err != nil {
		return nil, err
	}
	keys := func() (bolt.Keyring, error) { return readKeys(c) }
	l := &lookup{socket: socketOf(c.String(configFlag), cfg, serviceSocket(c)), db: cfg.Store.Path, keys: keys}
	if cfg.Store.Type == config.StoreMemory {
		l.db = ""
	}
	socket, db := c.String(socketFlag), c.String(dbFlag)
	switch {
	case c.String(fromFlag) != "" && (socket != "" || db != ""):
		return nil, usagef("--from replaces --socket and --db: leave them out")
	case c.String(fromFlag) != "":
		dir := snapshot.Dir{Path: cfg.Snapshots.Dir}
		return &lookup{from: dir.Find(c.String(fromFlag)), keys: keys}, nil
	case socket != "":
		l.socket, l.db = socket, db
	case db != "":
		l = &lookup{db: db, onlyFile: true, socketFallback: l.socket, keys: keys}
	}
	if l.socket == "" && l.db == "" {
		return nil, usagef("neither socket nor database is known: give --socket, --db or --config")
	}
	return l, nil
}

// serviceSocket returns the socket of the package's service whose configuration is given; without one, of
// snapcache.service.
func serviceSocket(c *cli.Context) string {
	s, _ := config.ServiceOf(c.String(configFlag))
	return s.Socket()
}

// socketOf returns the socket of the agent that a command asks: by default the package's service, if this
// user can connect to it, else the user's own agent. configFile is the file that cfg was
// read from, or empty.
func socketOf(configFile string, cfg *config.AgentConfiguration, service string) string {
	own := cfg.LocalAPI.Socket
	defaults := config.AgentConfiguration{Store: cfg.Store}
	defaults.SetDefaults()
	if _, ofService := config.ServiceOf(configFile); configFile != "" && !ofService || own != defaults.LocalAPI.Socket {
		return own
	}
	conn, err := net.DialTimeout("unix", service, answerTimeout)
	switch {
	case err == nil:
		_ = conn.Close() // nothing was sent
		return service
	case errors.Is(err, fs.ErrPermission) && !exists(own) && !exists(cfg.Store.Path):
		return service // its error names the group
	}
	return own
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// openCache opens the cache that the options select, until done is called.
func openCache(ctx context.Context, c *cli.Context) (src localapi.Source, status *localapi.Status, done func(), err error) {
	l, err := newLookup(c)
	if err != nil {
		return nil, nil, nil, err
	}
	if src, status, err = l.open(ctx); err != nil {
		l.close()
		return nil, nil, nil, err
	}
	return src, status, l.close, nil
}

func (l *lookup) open(ctx context.Context) (src localapi.Source, status *localapi.Status, err error) {
	if l.from != "" {
		return l.openSnapshot(ctx)
	}
	err = retryLocked(ctx, func() (err error) {
		src, status, err = l.openAgentOrFile(ctx)
		return err
	})
	return src, status, err
}

// retryLocked repeats try while it fails because an agent has the database open and does not answer, for
// startTimeout at most.
func retryLocked(ctx context.Context, try func() error) (err error) {
	_ = wait.PollUntilContextTimeout(ctx, startPoll, startTimeout, true, func(context.Context) (bool, error) {
		err = try()
		return !errors.Is(err, store.ErrLocked), nil
	})
	return err
}

func (l *lookup) openAgentOrFile(ctx context.Context) (localapi.Source, *localapi.Status, error) {
	if l.onlyFile {
		return l.openFile(ctx)
	}
	src, status, err := l.openSocket(ctx, l.socket)
	if err == nil || !errors.Is(err, localapi.ErrNoAgent) || l.db == "" {
		return src, status, err
	}
	missing := ""
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		missing = l.socket
	}
	src, status, fileErr := l.openDB(ctx, missing)
	if fileErr != nil {
		return nil, nil, fmt.Errorf("%w; and %w", err, fileErr)
	}
	return src, status, nil
}

// openFile reads the given file, or asks the agent that has it open.
func (l *lookup) openFile(ctx context.Context) (localapi.Source, *localapi.Status, error) {
	file, status, err := l.openDB(ctx, l.socketFallback)
	if !errors.Is(err, store.ErrLocked) || l.socketFallback == "" {
		return file, status, err
	}
	src, status, socketErr := l.openSocket(ctx, l.socketFallback)
	if socketErr != nil || !sameFile(status.Store.Path, l.db) {
		return nil, nil, err
	}
	return src, status, nil
}

// openDB reads the database file. It is closed when a query has read it, before the answer is printed,
// so that an agent can start. socket is a path that is known to have no agent, or empty.
func (l *lookup) openDB(ctx context.Context, socket string) (localapi.Source, *localapi.Status, error) {
	keys, err := l.keys()
	if err != nil {
		return nil, nil, err
	}
	db, err := bolt.Open(l.db, bolt.Options{ReadOnly: true, Keys: keys})
	if err != nil {
		return nil, nil, fileError(l.db, socket, err)
	}
	return l.read(ctx, db, localapi.Options{SpoolDir: filepath.Dir(l.db), Read: l.close})
}

func (l *lookup) openSnapshot(ctx context.Context) (localapi.Source, *localapi.Status, error) {
	ctx, progress, done := newProgress(ctx)
	defer done()
	keys, err := l.keys()
	if err != nil {
		return nil, nil, err
	}
	db, m, err := snapshot.Open(ctx, l.from, keys, progress.step)
	if err != nil {
		return nil, nil, restore.WithHint(err)
	}
	return l.read(ctx, db, localapi.Options{
		Verdict: "snapshot of " + m.Created.Local().Format(time.DateTime), SpoolDir: filepath.Dir(l.from),
		Status: func(s *localapi.Status) { s.Store.Path, s.Store.FileBytes = l.from, m.Database.Bytes },
	})
}

func (l *lookup) read(ctx context.Context, db *bolt.DB, opts localapi.Options) (localapi.Source, *localapi.Status, error) {
	l.kept, opts.StoreType = db, string(config.StoreBolt)
	src := localapi.FromDB(db, opts)
	status, err := src.Status(ctx)
	return src, status, err
}

func (l *lookup) close() {
	if l.kept != nil {
		_ = l.kept.Close() // opened for reading
		l.kept = nil
	}
}

func (l *lookup) openSocket(ctx context.Context, socket string) (localapi.Source, *localapi.Status, error) {
	client := localapi.NewClient(socket)
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	status, err := client.Status(limited)
	switch {
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		return nil, nil, fmt.Errorf("%w on %s within %s", localapi.ErrNoAgent, socket, answerTimeout)
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, fmt.Errorf("%w (run this as root, as the agent's user, or as a member of the socket's group)", err)
	case err != nil:
		return nil, nil, err
	}
	l.answered = socket
	return client, status, nil
}

// fileError adds the next step to an error for a database that can't be opened.
func fileError(path, socket string, err error) error {
	switch {
	case errors.Is(err, store.ErrNoStore):
		return &store.Error{Err: fmt.Errorf("there is %w at %s", store.ErrNoStore, path), Hint: "start an agent (snapcache run) or give another file with --db"}
	case errors.Is(err, store.ErrLocked) && socket == "":
		return &store.Error{Err: inUse{path, err}, Hint: "check whether that agent is stuck, or give another --socket"}
	case errors.Is(err, store.ErrLocked):
		return &store.Error{Err: inUse{path, err}, Hint: "an agent has it open, but no socket is at " + socket + ": give --socket"}
	case errors.Is(err, store.ErrNetworkFS):
		return withCode(exitUsage, restore.WithHint(err))
	case errors.Is(err, fs.ErrPermission):
		return &store.Error{Err: fmt.Errorf("the database %s can't be read: %w", path, fs.ErrPermission), Hint: "run this as the agent's user"}
	case errors.As(err, new(*store.CorruptionError)):
		return &store.Error{Err: err, Hint: "an agent that starts on it sets it aside"}
	}
	return restore.WithHint(err)
}

// inUse is store.ErrLocked with the database.
type inUse struct {
	path string
	err  error
}

func (e inUse) Error() string { return "the database " + e.path + " is in use by another process" }
func (e inUse) Unwrap() error { return e.err }

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
