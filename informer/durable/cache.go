package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/upstream"
)

// Options are the settings of a cache. Dir and Config are needed.
type Options struct {
	// Dir is the directory of the cache's file, for one process at a time. If it is missing, Open makes
	// it, for this user only.
	Dir string

	// Config is the connection of the manager or of the clients. Objects that were stored from another
	// cluster are listed again.
	Config *rest.Config

	// Scheme has the kinds of the program's Go types: the manager's scheme.
	Scheme *runtime.Scheme

	// Metrics gets the metrics of the cache, until it is closed: the manager's registry. Nil for none.
	Metrics prometheus.Registerer

	// Informers are further settings of each informer, if the cache is durable: a manager with a transform
	// needs its name, informer.WithScope(store.Scope{Transform: "v1"}), or each start lists everything.
	Informers []informer.Option

	// Required makes Open fail if the directory can't be used.
	Required bool

	// Logger is the logger of the cache and of its informers. Nil is slog.Default, and for informers the
	// one that informer.WithLogger describes.
	Logger *slog.Logger
}

// Cache is the cache of a program. It is safe for concurrent use.
type Cache struct {
	opts        Options
	db          *bolt.DB // nil if the directory could not be used
	cluster     *upstream.Cluster
	metrics     *metrics
	settings    []informer.Option // of each informer
	newInformer func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer
}

// Open opens the cache in opts.Dir, and sends no request. [Cache.Run] or [Cache.Close] closes the cache.
//
// If the directory can't be used, Open logs a warning with the reason and the next step, and informers
// are in memory. A process that has the cache open is given a few seconds to close it. A corrupt file is
// set aside, and everything is listed again.
//
// Open returns an error if the options are not complete, the connection can't be made of Config or ctx
// has ended, and if opts.Required is set and the directory can't be used: the error is a [store.Error],
// and wraps the errors of [bolt.Open].
func Open(ctx context.Context, opts Options) (*Cache, error) {
	switch {
	case opts.Dir == "":
		return nil, errors.New("durable cache: Options have no Dir: name the directory of the cache's file")
	case opts.Config == nil:
		return nil, errors.New("durable cache: Options have no Config: give the one of the manager or of the clients")
	}
	cluster, err := upstream.New(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("durable cache: %w", err)
	}
	c := &Cache{
		opts: opts, cluster: cluster, newInformer: cache.NewSharedIndexInformer,
		metrics: &metrics{informers: informer.NewMetrics(), path: opts.path()},
	}
	c.settings = []informer.Option{informer.WithMetrics(c.metrics.informers)}
	if opts.Logger == nil {
		c.opts.Logger = slog.Default()
	} else {
		c.settings = append(c.settings, informer.WithLogger(opts.Logger))
	}
	if err = c.open(ctx); err == nil && opts.Metrics != nil {
		err = opts.Metrics.Register(c.metrics)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// open opens the file, or decides to do without.
func (c *Cache) open(ctx context.Context) (err error) {
	c.db, err = c.opts.openFile(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		refused := c.opts.refusal(err)
		if c.opts.Required {
			return refused.error()
		}
		c.metrics.reason = refused.reason
		c.opts.Logger.Warn("the cache is not durable: informers are in memory, and each start lists everything",
			"dir", c.opts.Dir, "reason", refused.reason, "error", err, "remedy", refused.remedy)
		return nil
	}
	c.newInformer = informer.NewFunc(c.db, c.durably()...)
	return nil
}

// durably returns the settings of each informer on the file.
func (c *Cache) durably() []informer.Option {
	return slices.Concat(c.settings, []informer.Option{
		informer.WithScheme(c.opts.Scheme), informer.WithIdentity(c.cluster.Identity),
	}, c.opts.Informers)
}

// NewInformer makes an informer. It is the value for controller-runtime's cache.Options.NewInformer. If
// the cache is not durable, NewInformer is client-go's NewSharedIndexInformer.
func (c *Cache) NewInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return c.newInformer(lw, example, resync, indexers)
}

// Constructor returns what makes the informers of a program whose source does not choose them, see
// [informer.NewConstructor]; nil, to leave all of them to client-go, if the cache is not durable.
func (c *Cache) Constructor() informer.Constructor {
	if c.db == nil {
		return nil
	}
	return informer.NewConstructor(c.db, c.cluster.Server(), c.durably()...)
}

// Factory returns a factory of informers on the cache. The cache's settings take the place of empty ones
// in opts. If the cache is not durable, the informers are in memory.
func (c *Cache) Factory(opts informer.FactoryOptions) (*informer.Factory, error) {
	if opts.Config == nil && opts.Client == nil {
		opts.Config = c.opts.Config
	}
	if opts.Scheme == nil {
		opts.Scheme = c.opts.Scheme
	}
	if opts.Store == nil && c.db != nil {
		opts.Store = c.db
	}
	opts.Informers = slices.Concat(c.settings, c.opts.Informers, opts.Informers)
	return informer.NewFactory(opts)
}

// Run calls start, such as a manager's Start, and closes the cache when start has returned or panicked.
// The error is start's, joined with the one of [Cache.Close].
func (c *Cache) Run(ctx context.Context, start func(context.Context) error) (err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	return start(ctx)
}

// Close closes the cache, after the informers have stopped: one that still runs ends. If changes could
// not be written, because the disk is full, Close returns the error; the server sends them again after
// the next start. Closing again does nothing.
func (c *Cache) Close() error {
	c.metrics.closed.Store(true)
	c.cluster.Close()
	if c.db == nil {
		return nil
	}
	if err := c.db.Close(); err != nil {
		return fmt.Errorf("close the cache in %s: %w", c.opts.Dir, err)
	}
	return nil
}
