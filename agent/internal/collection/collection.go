package collection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/upstream"
)

// RequestTimeout limits a single request for one object, or for one resource's name.
const RequestTimeout = 30 * time.Second

// Options are the dependencies that all collections of an agent share.
type Options struct {
	DB    store.DB
	Clock clock.WithTickerAndDelayedExecution
	Log   *slog.Logger

	// ForeignCheckpoint is set if the database came from a snapshot, whose checkpoints may be
	// another node's.
	ForeignCheckpoint bool

	// Reloaded is set if a reload added the collection, so that no mistake in its configuration
	// ends the agent.
	Reloaded bool

	// Attributes keeps the values that selectors of the Kubernetes API match in the history, so that
	// watches with a selector continue from it.
	Attributes bool

	// Named gets a value when a resource has become known, in a version; nil for none.
	Named chan<- struct{}

	// PurgeAfter returns the value of secrets.purgeAfter in force.
	PurgeAfter func() time.Duration
}

// Collection is one configured resource in one namespace scope, from the server to the store.
type Collection struct {
	ID        string
	Namespace string // empty for all
	Log       *slog.Logger
	Tracker   *Tracker

	opts Options
	api  api

	// For the collection's own goroutine.
	rejected upstream.ErrorClass // how the server rejects requests; empty while it accepts them
	reloaded bool                // the configuration in force came from a reload
	reason   store.Reason        // why it must be listed, when it was opened; empty for a resume

	wake chan struct{} // has a value once next was set

	mu   sync.Mutex   // guards the fields below
	spec Spec         // in force
	next *pendingSpec // nil for no change

	// Set once the resource is known. Only the collection's own goroutine and a paused task
	// change resource and stored.
	resource *upstream.Resource
	stored   store.Collection
	source   *upstream.Source
	pipeline *pipeline.Pipeline

	stop  context.CancelFunc // nil while the collection does not run
	tasks []*pausedTask      // run once the collection has stopped

	supervision supervision
}

// pendingSpec is a spec that is to be in force next.
type pendingSpec struct {
	Spec
	applied chan struct{} // closed once it is in force
}

// New returns a collection. It does nothing until it is opened or supervised.
func New(s Spec, opts Options) *Collection {
	log := opts.Log.With("collection", s.ID)
	c := &Collection{
		ID: s.ID, Namespace: s.Namespace, Log: log, Tracker: NewTracker(opts.Clock),
		opts: opts, reloaded: opts.Reloaded, wake: make(chan struct{}, 1), spec: s,
	}
	c.Tracker.onPhase = c.logRejection
	c.api.served = c.newServed()
	return c
}

// Configured returns the resource as it is configured now.
func (c *Collection) Configured() config.Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec.Entry
}

// field returns the collection's place in the configuration.
func (c *Collection) field() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec.Field
}

// Live is a stored collection with its present source and queue.
type Live struct {
	// Stored is nil until the resource is known, and again once another version of it is configured.
	Stored store.Collection

	// Source and Queue are nil before the first run.
	Source *upstream.Source
	Queue  *deltafifo.Queue
}

// Live returns the parts of the collection as they are now. Each run has another source and queue.
func (c *Collection) Live() Live {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pipeline == nil {
		return Live{Stored: c.stored}
	}
	return Live{c.stored, c.source, c.pipeline.Queue}
}

// Resource returns the resource as the server names it; nil until it is known.
func (c *Collection) Resource() *upstream.Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resource
}

// Relist starts a complete list. It must not be called before the first run.
func (c *Collection) Relist(reason store.Reason, cause error) {
	c.mu.Lock()
	refl := c.pipeline.Reflector
	c.mu.Unlock()
	refl.Relist(reason, cause)
}

// Watching reports whether the watch is up and no list is pending.
func (c *Collection) Watching() bool {
	return c.Tracker.Watching() && !c.ListPending()
}

// ListPending reports whether a list has begun and is not yet stored: the store holds the state
// before the list.
func (c *Collection) ListPending() bool {
	queue := c.Live().Queue
	return queue != nil && queue.ListPending()
}

// Readable reports whether the record of a key can be read, or does not exist.
func (c *Collection) Readable(key string) (bool, error) {
	stored := c.Live().Stored
	if stored == nil {
		return false, store.ErrNoCollection
	}
	v, err := stored.View()
	if err != nil {
		return false, err
	}
	defer v.Close()
	_, err = v.Get(key)
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound):
		return true, nil
	case errors.As(err, new(*store.CorruptionError)):
		return false, nil
	}
	return false, err
}

// info returns the resource, scope and transform that the stored objects must have.
func (c *Collection) info(r upstream.Resource) (store.Info, error) {
	label, err := labels.Parse(c.Configured().LabelSelector)
	if err != nil {
		return store.Info{}, fmt.Errorf("%s.labelSelector: %w", c.field(), err)
	}
	field, err := fields.ParseSelector(c.Configured().FieldSelector)
	if err != nil {
		return store.Info{}, fmt.Errorf("%s.fieldSelector: %w", c.field(), err)
	}
	return store.Info{
		ID: c.ID, Group: r.GVR.Group, Version: r.GVR.Version, Resource: r.GVR.Resource, Kind: r.Kind,
		Namespaced: r.Namespaced, Namespace: c.Namespace,
		// In canonical form, as in requests, so that spaces and order make no other scope.
		LabelSelector: label.String(), FieldSelector: field.String(),
		Transform: c.prune().ID(),
	}, nil
}

func (c *Collection) prune() object.Prune {
	transform := c.Configured().Transform
	paths := append([]string(nil), transform.Drop...)
	if !transform.KeepManagedFields {
		paths = append(paths, object.ManagedFields)
	}
	return object.NewPrune(paths...)
}

func (c *Collection) indexes() []store.Index {
	var indexes []store.Index
	for _, x := range c.Configured().Indexes {
		if x.Label != "" {
			indexes = append(indexes, store.LabelIndex(x.Name, x.Label))
		} else {
			indexes = append(indexes, store.FieldIndex(x.Name, x.Field))
		}
	}
	return indexes
}

// Open opens the stored collection, and decides whether its objects can be used.
func (c *Collection) Open(r upstream.Resource) error {
	if c.Namespace != "" && !r.Namespaced {
		return fmt.Errorf("%s.namespaces: %s %w: remove the field", c.field(), r.GVR.Resource, errNoNamespaces)
	}
	info, err := c.info(r)
	if err != nil {
		return err
	}
	if err := c.loadDescription(); err != nil {
		return err
	}
	indexes := c.indexes()
	if c.opts.Attributes {
		indexes = append(indexes, c.attributes(info, c.Description()))
	}
	stored := c.stored
	if stored != nil {
		err = stored.Reopen(info, indexes...)
	}
	if stored == nil || errors.Is(err, store.ErrNoCollection) { // it was purged
		stored, err = c.opts.DB.Open(info, indexes...)
	}
	if err != nil {
		return err
	}
	if bolted, durable := c.opts.DB.(*bolt.DB); durable && c.Configured().Resource.IsSecrets() {
		if d, err := bolted.ForbiddenFor(c.ID); err == nil { // if it can't be read, the time begins again
			c.Tracker.SetForbiddenFor(d)
		}
	}
	state := stored.State()
	c.reason = c.definitionChanged(pipeline.ListReason(stored.Info(), info, state), stored.Info(), info)
	verdict := "resume at RV " + state.RV
	if c.reason != "" {
		verdict = "list: " + string(c.reason)
	}
	c.Tracker.setVerdict(verdict)
	c.Log.Info("collection opened", "verdict", verdict, "objects", state.Count)
	c.api.served.Events.Skip(state.RV) // the loop may not start for hours
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resource, c.stored = &r, stored
	select {
	case c.opts.Named <- struct{}{}:
	default:
	}
	return nil
}

// Close gives the stored collection up. The collection must not run. Requests in progress fail.
func (c *Collection) Close() error {
	if stored := c.Live().Stored; stored != nil {
		return stored.Close()
	}
	return nil
}

// run keeps the collection up to date until ctx ends, then applies the queued changes.
func (c *Collection) run(ctx context.Context, cluster *upstream.Cluster, member *reflector.Member) error {
	c.mu.Lock()
	spec := c.spec
	c.mu.Unlock()
	source := cluster.Source(upstream.SourceOptions{
		Resource: *c.resource, Namespace: c.Namespace,
		LabelSelector: spec.Entry.LabelSelector, FieldSelector: spec.Entry.FieldSelector,
		Prune: c.prune(),
	})
	p := pipeline.New(reflector.Options{
		Source: source, Identity: cluster.Identity, Kind: c.resource.Kind,
		Guards: []reflector.Guard{reflector.Canary(c.stored, source, c.Log)},
		Schema: c.schema(), Member: c.sharing(member),
		Reason: c.reason, Jitter: spec.Jitter, Spread: c.spread(spec.Jitter), ForeignCheckpoint: c.opts.ForeignCheckpoint,
		ConfirmDeletions: spec.Relist.ConfirmDeletions,
		Observer:         c.Tracker, Logger: c.Log,
	}, pipeline.LoopOptions{
		Collection: c.stored, Flush: c.opts.DB.Flush,
		Sinks: []pipeline.Sink{c.api.served.Events, c.Tracker}, StoreFailed: c.Tracker.StoreFailed,
		Around: c.Tracker.progress.around, Clock: c.opts.Clock,
	})
	c.mu.Lock()
	c.source, c.pipeline = source, p
	c.mu.Unlock()
	beside, end := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { c.describe(beside) })
	tasks.Go(func() { c.watchOver(beside, c.stored, source, p.Reflector) })
	err := p.Run(ctx)
	end()
	tasks.Wait()
	return err
}

// sharing returns the member if the resource is in the kube-apiserver's own datastore. An aggregated API has
// another one: neither is a proof for the other.
func (c *Collection) sharing(member *reflector.Member) *reflector.Member {
	if upstream.MayBeCustom(c.resource.GVR.Group) && !c.Description().Custom {
		return nil
	}
	return member
}
