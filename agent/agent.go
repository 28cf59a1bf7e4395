package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/backup"
	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/agent/internal/database"
	"github.com/snapcache/snapcache/agent/internal/kubernetes"
	"github.com/snapcache/snapcache/agent/internal/purge"
	"github.com/snapcache/snapcache/agent/internal/repair"
	"github.com/snapcache/snapcache/agent/internal/status"
	"github.com/snapcache/snapcache/agent/internal/verify"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/internal/network"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/systemd"
	"github.com/snapcache/snapcache/upstream"
)

// Options are the settings that the configuration file does not have.
type Options struct {
	// Version is the program's version.
	Version string

	// Logger receives the agent's log; nil discards it.
	Logger *slog.Logger

	// Progress is a terminal that shows the progress of lists in one line; nil for none. The log
	// has the progress in any case.
	Progress io.Writer

	// Load reads and validates the configuration again for a reload, with the options of the
	// command line applied; nil if it can't be read again.
	Load func() (*config.AgentConfiguration, error)

	// Hangup has a value for each reload that a signal requests; nil for none.
	Hangup <-chan os.Signal

	// Level is the Logger's level, which a reload sets; nil if it can't be set.
	Level *slog.LevelVar

	started time.Time
	socket  *os.File // the one that systemd passed; nil for none
}

// UsageError is an error of the command line or of the configuration.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Agent is a running agent.
type Agent struct {
	opts      Options
	log       *slog.Logger
	clock     clock.RealClock
	opener    database.Opener
	db        *database.Database
	snapshots *backup.Snapshots // nil for a store that has none
	source    localapi.Source
	kube      *kubernetes.API
	status    *status.Reporter
	stopping  <-chan struct{} // closed when the agent is to stop
	damages   *repair.Damages
	drawn     string // the progress line on the terminal
	verifier  *verify.Verifier
	settings  *settings
	watchdog  watchdog
	retries   sleep.Bell // ends waits for the server early
	cluster   *upstream.Cluster
	next      *Agent // goes on with a file; nil unless the database is in memory until the disk takes one

	collections atomic.Pointer[[]*collection.Collection] // a new slice when a reload changes it
	named       chan struct{}                            // has a value when a resource has become known
}

// Run runs an agent until ctx ends, and then stops it in good order. If the error is a
// *UsageError, the configuration has to be changed before another try.
func Run(ctx context.Context, cfg *config.AgentConfiguration, opts Options) error {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if opts.socket, err = systemd.Socket(); err != nil {
		return &UsageError{Err: err}
	}
	if opts.socket != nil {
		defer func() { _ = opts.socket.Close() }() // the listeners have copies
	}
	opts.started = time.Now()
	a, err := newAgent(cfg, opts)
	if err != nil {
		return err
	}
	if err := a.openStore(ctx); err != nil {
		a.cluster.Close()
		if ctx.Err() != nil {
			return nil // stopped while the database was being opened
		}
		return err
	}
	for a != nil && err == nil {
		a, err = a.run(ctx)
	}
	if err == nil {
		opts.Logger.Info("stopped")
	}
	return err
}

// newAgent returns an agent without a database. Its cluster has to be closed.
func newAgent(cfg *config.AgentConfiguration, opts Options) (*Agent, error) {
	a := &Agent{
		opts: opts, log: opts.Logger, damages: repair.NewDamages(), settings: newSettings(cfg, time.Now()), named: make(chan struct{}, 1),
	}
	a.verifier = verify.New(a.clock, a.all, reloadable(a.settings, func(c *config.AgentConfiguration) time.Duration {
		return c.Verify.Interval.Duration
	}))
	keys, err := bolt.ReadKeyring(cfg.Encryption.KeyFile, cfg.Encryption.OldKeyFiles)
	if err != nil {
		return nil, &UsageError{Err: err}
	}
	a.opener = database.Opener{Clock: a.clock, Log: a.log, Checking: a.checking, Options: func() bolt.Options { return a.boltOptions(keys) }}
	if a.cluster, err = a.newCluster(cfg); err != nil {
		return nil, &UsageError{Err: err}
	}
	return a, nil
}

// run serves until ctx ends. It returns the agent that goes on if the database moves to a file.
func (a *Agent) run(ctx context.Context) (next *Agent, err error) {
	err = a.serve(ctx)
	if next = a.next; errors.Is(err, errMoves) {
		err = next.take(a.db)
	} else if next != nil {
		err, next = errors.Join(err, next.close()), nil
	}
	return next, errors.Join(err, a.close())
}

// close closes the database and the connection to the server.
func (a *Agent) close() (err error) {
	defer a.cluster.Close()
	a.extended(func() {
		if err = a.db.Close(); err != nil {
			err = fmt.Errorf("close database: %w", err)
		}
	})
	return err
}

// newCluster returns the connection to the server, or to two of them, and to the seed.
func (a *Agent) newCluster(cfg *config.AgentConfiguration) (*upstream.Cluster, error) {
	cluster, err := a.newServers(cfg)
	if name := cfg.Restore.Context(); err == nil && name != "" {
		var seed *rest.Config
		if seed, err = a.connection(cfg, name); err == nil {
			err = cluster.SeedFrom(seed)
		}
		if err != nil {
			err = fmt.Errorf("restore.seed names a context, as it has no slash: %w", err)
		}
	}
	return cluster, err
}

// newServers returns the connection to the server, or to two of them.
func (a *Agent) newServers(cfg *config.AgentConfiguration) (*upstream.Cluster, error) {
	preferred, err := a.connection(cfg, "")
	if err != nil {
		return nil, err
	}
	var other *rest.Config
	if cfg.FallbackContext != "" {
		if other, err = a.connection(cfg, cfg.FallbackContext); err != nil {
			return nil, fmt.Errorf("fallbackContext: %w", err)
		}
	}
	return upstream.NewLinked(preferred, other, a.clock, a.log, a.retries.Ring)
}

// connection returns the configuration of the connection to the server of a context, empty for the
// current one.
func (a *Agent) connection(cfg *config.AgentConfiguration, context string) (*rest.Config, error) {
	c, err := upstream.LoadConfig(cfg.Kubeconfig, context)
	if err == nil {
		c.UserAgent = "snapcache/" + a.opts.Version
	}
	return c, err
}

// use makes d the agent's database, and opens the configured collections that are in it. If it fails, the
// caller closes d.
func (a *Agent) use(d *database.Database) error {
	a.db, a.snapshots = d, nil // not those of a file that turned out to be of no use
	if d.Bolt != nil {
		a.snapshots = backup.New(d.Bolt, a.snapshotDir(), reloadable(a.settings, func(c *config.AgentConfiguration) config.Snapshots {
			return c.Snapshots
		}), a.clock, a.log)
	}
	return a.openCollections()
}

// openError returns the error of a database that can't be opened and is left unchanged, with the next
// step; nil for none. A file that was set aside is no error: see [restore.Open].
func openError(err error) error {
	hinted := restore.WithHint(err)
	if errors.Is(err, store.ErrKey) || errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrNetworkFS) {
		return &UsageError{hinted}
	}
	return hinted
}

// boltOptions returns the database's options, from the configuration in force.
func (a *Agent) boltOptions(keys bolt.Keyring) bolt.Options {
	return bolt.Options{
		MaxBytes: a.config().Store.MaxSize.Value(), FlushInterval: a.config().Store.CommitInterval.Duration,
		HistoryRetention: a.config().History.Retention.Duration, HistoryBytes: a.config().History.MaxSize.Value(),
		Clock: a.clock, Writer: "snapcache " + a.opts.Version, OnCorrupt: a.damages.Note,
		Logger: a.log, Keys: keys, OrReadOnly: true,
	}
}

// openCollections makes the configured collections, and opens each that the database has in the
// configured version. It drops stored collections that are not configured.
func (a *Agent) openCollections() error {
	stored, err := a.db.Collections()
	if err != nil {
		return err
	}
	known := map[string]store.Info{}
	for _, info := range stored {
		known[info.ID] = info
	}
	var collections []*collection.Collection
	for _, w := range collection.Specs(a.config()) {
		c := collection.New(w, a.collectionOptions(false))
		collections = append(collections, c)
		info, ok := known[c.ID]
		delete(known, c.ID)
		version, scoped := w.Entry.Resource.Version, w.Namespace == "" || info.Namespaced
		if !ok || !scoped || version != "" && version != info.Version {
			continue // until the server names it
		}
		err := c.Open(upstream.Resource{GVR: info.GVR(), Kind: info.Kind, Namespaced: info.Namespaced})
		if files.RefusesWrites(err) {
			c.Log.Error("the disk takes no writes, so the collection can't be changed as configured; retrying", "error", err)
		} else if err != nil {
			return err
		}
	}
	a.collections.Store(&collections)
	for id := range known {
		if err := a.db.Drop(id); files.RefusesWrites(err) {
			a.log.Error("could not drop a collection that is no longer configured; the next start retries", "collection", id, "error", err)
			continue
		} else if err != nil {
			return err
		}
		a.log.Info("dropped a collection that is no longer configured", "collection", id)
	}
	return nil
}

// serve runs the local API and the collections until ctx ends or one of them fails. It listens
// before it connects to the server, so that the cache can be read at once. The end of ctx is no
// error.
func (a *Agent) serve(ctx context.Context) (err error) {
	group, running := errgroup.WithContext(ctx)
	a.stopping = running.Done()
	kube := kubernetes.Options{
		Config: a.config, All: a.all, Clock: a.clock, Log: a.log, Named: a.named,
		OpenStore: func(path string) (store.DB, error) {
			db, err := a.opener.OpenSmall(ctx, path)
			return db, openError(err)
		},
	}
	if !a.config().Metrics.Disabled {
		metrics := sync.OnceValue(func() http.Handler { return a.status.Metrics() })
		kube.Scrape = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { metrics().ServeHTTP(w, r) })
	}
	if a.kube, err = kubernetes.New(kube); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.kube.Close()) }()
	a.status = status.New(status.Options{
		Version: a.opts.Version, Started: a.opts.started, DB: a.db.DB, Refused: a.db.Refused, Verdict: a.db.File, Clock: a.clock,
		Config: a.config, All: a.all, Corrupt: a.damages.Count, Snapshots: a.snapshots.Status, Cluster: a.cluster,
		API: a.kube.Metrics, Certificate: a.kube.Certificate, Loaded: a.settings.status, Stalled: a.watchdog.stuck,
	})
	a.source = localapi.FromDB(a.db.DB, localapi.Options{
		StoreType: string(a.db.Type()), Verdict: a.db.File.String(),
		SpoolDir: filepath.Dir(a.config().Store.Path), Status: a.status.Fill,
		Changed: a.nextChange, Done: a.stopping,
	})
	serveSocket, listener, err := a.openSocket()
	if err != nil {
		return err
	}
	if listener != nil {
		defer func() { _ = listener.Close() }() // if it was served, it is closed
	}
	servers := []func(context.Context) error{serveSocket}
	if !a.config().Metrics.Disabled {
		metrics, err := net.Listen("tcp", a.config().Metrics.Address)
		if err != nil {
			return &store.Error{Err: fmt.Errorf("metrics: %w", err), Hint: "give metrics.address another port, or set metrics.disabled"}
		}
		defer func() { _ = metrics.Close() }()
		a.log.Info("serving metrics", "address", metrics.Addr().String())
		servers = append(servers, a.serveMetrics(metrics))
	}
	listeners, err := a.kube.Listen()
	if err != nil {
		return err
	}
	for _, l := range listeners {
		servers = append(servers, serveOn(l.Listener, l.Server))
	}
	a.log.Info("ready", "socket", a.config().LocalAPI.Socket)

	group.Go(func() error { a.tellReady(running); return nil })
	for _, serve := range servers {
		group.Go(func() error { return serve(running) })
	}
	group.Go(func() error { a.tell(systemd.Watchdog(running, a.clock, a.healthy)); return nil })
	group.Go(func() error { a.report(running); return nil })
	group.Go(func() error { a.snapshots.Run(running); return nil })
	group.Go(func() error { return a.follow(running) })
	if a.db.Refused != nil {
		group.Go(func() error { return a.awaitDisk(running) })
	}
	err = group.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// follow runs the collections until ctx ends, and returns once they have stored the queued changes.
// The database must stay open until then.
func (a *Agent) follow(ctx context.Context) error {
	cluster := a.cluster
	a.log.Info("connecting", "server", cluster.Server())
	purger := purge.Purger{DB: a.db.DB, Clock: a.clock, Log: a.log, All: a.all, After: reloadable(a.settings, func(c *config.AgentConfiguration) time.Duration {
		return c.Secrets.PurgeAfter.Duration
	})}
	group, running := errgroup.WithContext(sleep.WithBell(ctx, &a.retries))
	supervisors := &collection.Supervisors{Cluster: cluster, Group: group, Running: running}
	for _, c := range a.all() {
		supervisors.Start(c)
	}
	group.Go(func() error { cluster.Run(running, func() { a.kube.Reconnect(cluster) }); return nil })
	group.Go(func() error { a.reloadsOn(running, cluster, supervisors); return nil })
	group.Go(func() error { repair.Repairer{Damages: a.damages, Clock: a.clock, All: a.all}.Run(running); return nil })
	group.Go(func() error { a.watchNetwork(running); return nil })
	group.Go(func() error { a.verifier.Run(running); return nil })
	group.Go(func() error { purger.Run(running); return nil })
	group.Go(func() error { a.kube.Follow(running, cluster); return nil })
	group.Go(func() error { collection.FollowVersions(running, a.clock, cluster, a.all); return nil })
	<-running.Done()
	if !errors.Is(context.Cause(running), errMoves) {
		a.tell(systemd.Stopping("storing the last changes"))
	}
	return group.Wait()
}

// watchNetwork ends waits for the server when the network changes, until ctx ends.
func (a *Agent) watchNetwork(ctx context.Context) {
	err := network.Changes(ctx, a.clock, func() {
		a.log.Debug("the network changed: retrying at once")
		a.retries.Ring()
	})
	if err != nil {
		a.log.Info("changes of the network can't be noticed, so they end no wait for the server", "error", err)
	}
}

// snapshotDir returns the directory of the snapshots.
func (a *Agent) snapshotDir() snapshot.Dir {
	return snapshot.Dir{Path: a.config().Snapshots.Dir, Writer: "snapcache " + a.opts.Version}
}

// config returns the configuration in force. It is immutable: a reload installs another one.
func (a *Agent) config() *config.AgentConfiguration { return a.settings.get() }

// collectionOptions returns the options of the agent's collections. reloaded is set if a reload adds
// them.
func (a *Agent) collectionOptions(reloaded bool) collection.Options {
	return collection.Options{
		DB: a.db.DB, Clock: a.clock, Log: a.log, ForeignCheckpoint: a.db.Foreign, Reloaded: reloaded,
		Attributes: a.config().KubernetesAPI.Enabled(), Named: a.named,
		PurgeAfter: func() time.Duration { return a.config().Secrets.PurgeAfter.Duration },
	}
}

// all returns the collections. The slice is immutable.
func (a *Agent) all() []*collection.Collection {
	if all := a.collections.Load(); all != nil {
		return *all
	}
	return nil
}

// nextChange returns a channel that is closed at the next change of a collection, nil if there is no
// such collection.
func (a *Agent) nextChange(id string) <-chan struct{} {
	for _, c := range a.all() {
		if c.ID == id {
			return c.Tracker.NextChange()
		}
	}
	return nil // the store returns the error to the reader
}

// tell logs the error of a notification to systemd, if there is one. The agent does not depend on
// notifications.
func (a *Agent) tell(err error) {
	if err != nil {
		a.log.Warn("could not notify systemd", "error", err)
	}
}
