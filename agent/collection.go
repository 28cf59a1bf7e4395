package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/upstream"
)

// collection is one configured resource in one namespace scope, from the server
// to the store.
type collection struct {
	id    string
	ns    string
	clock clock.RealClock
	log   *slog.Logger
	track *tracker
	pulse *pulse
	flush func() error

	purgeAfter func() time.Duration // as secrets.purgeAfter is in force

	rejection rejection // used by its own goroutine alone
	elsewhere bool      // its checkpoint may be another node's
	reloaded  bool      // a reload said what it is; used by its own goroutine alone once that runs

	wake chan struct{} // has one when next was set

	mu      sync.Mutex    // guards what follows
	wanted                // what is in force
	next    *wanted       // what is to be in force next; nil for nothing else
	adopted chan struct{} // closed when it is

	// Set once the resource is known.
	resource *upstream.Resource
	stored   store.Collection
	source   *upstream.Source
	queue    *deltafifo.Queue
	refl     *reflector.Reflector

	stop          context.CancelFunc // nil while it does not run
	interruptions []*interruption    // to be served when it has stopped

	denied bool // the purges' newest look found it forbidden; used by them alone
}

// wanted is what the configuration says of a collection.
type wanted struct {
	field  string // where it stands in the configuration, for errors
	entry  config.Resource
	jitter time.Duration
	relist config.Relist
}

// wantedIn is a wanted collection in one namespace scope.
type wantedIn struct {
	wanted
	id, ns string
}

// wantedBy are the collections that a configuration names, in its order.
func wantedBy(cfg *config.AgentConfiguration) []wantedIn {
	var all []wantedIn
	for i, r := range cfg.Resources {
		namespaces := r.Namespaces
		if len(namespaces) == 0 {
			namespaces = []string{""}
		}
		for _, ns := range namespaces {
			w := wanted{field: fmt.Sprintf("resources[%d]", i), entry: r, jitter: cfg.ResumeJitter.Duration, relist: cfg.Relist}
			all = append(all, wantedIn{w, collectionID(r.Resource, ns), ns})
		}
	}
	return all
}

func (a *Agent) newCollection(w wantedIn) *collection {
	log := a.log.With("collection", w.id)
	return &collection{
		id: w.id, ns: w.ns, wanted: w.wanted, clock: a.clock, log: log, track: newTracker(a.clock, log), pulse: &pulse{clock: a.clock},
		flush: a.db.Flush, elsewhere: a.elsewhere, wake: make(chan struct{}, 1),
		purgeAfter: func() time.Duration { return a.config().Secrets.PurgeAfter.Duration },
	}
}

// configured is what the configuration in force says of the resource.
func (c *collection) configured() config.Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entry
}

// where is where the collection stands in the configuration.
func (c *collection) where() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.field
}

// collectionID names a collection: "pods", "deployments.apps", "pods@shop". The
// version is no part of it: a version that changes makes a relist, not a second
// copy.
func collectionID(name config.ResourceName, namespace string) string {
	id := name.GroupResource().String()
	if namespace != "" {
		id += "@" + namespace
	}
	return id
}

// info is what the collection is to be a copy of.
func (c *collection) info(r upstream.Resource) (store.Info, error) {
	label, err := labels.Parse(c.configured().LabelSelector)
	if err != nil {
		return store.Info{}, fmt.Errorf("%s.labelSelector: %w", c.where(), err)
	}
	field, err := fields.ParseSelector(c.configured().FieldSelector)
	if err != nil {
		return store.Info{}, fmt.Errorf("%s.fieldSelector: %w", c.where(), err)
	}
	return store.Info{
		ID: c.id, Group: r.GVR.Group, Version: r.GVR.Version, Resource: r.GVR.Resource, Kind: r.Kind,
		Namespaced: r.Namespaced, Namespace: c.ns,
		// As the server would be asked, so that other spaces or another order are no
		// other scope.
		LabelSelector: label.String(), FieldSelector: field.String(),
		Transform: c.prune().ID(),
	}, nil
}

func (c *collection) prune() object.Prune {
	transform := c.configured().Transform
	paths := append([]string(nil), transform.Drop...)
	if !transform.KeepManagedFields {
		paths = append(paths, object.ManagedFields)
	}
	return object.NewPrune(paths...)
}

func (c *collection) indexes() []store.Index {
	var indexes []store.Index
	for _, x := range c.configured().Indexes {
		if x.Label != "" {
			indexes = append(indexes, store.LabelIndex(x.Name, x.Label))
		} else {
			indexes = append(indexes, store.FieldIndex(x.Name, x.Field))
		}
	}
	return indexes
}

// open opens the collection's part of the database and judges what is there.
func (c *collection) open(db store.DB, r upstream.Resource) error {
	if c.ns != "" && !r.Namespaced {
		return usage("%s.namespaces: %s live in no namespace: remove the field", c.where(), r.GVR.Resource)
	}
	info, err := c.info(r)
	if err != nil {
		return err
	}
	stored, err := db.Open(info, c.indexes()...)
	if err != nil {
		return err
	}
	if bolted, durable := db.(*bolt.DB); durable && c.configured().Resource.IsSecrets() {
		if refused, err := bolted.ForbiddenFor(c.id); err == nil { // what can't be read counts from now on
			c.track.note(func(s *seen) { s.refused = refused })
		}
	}
	verdict := c.versionChanged(restore.Judge(stored.Info(), info, stored.State()), stored.Info(), info)
	c.track.setVerdict(verdict.String())
	c.log.Info("collection opened", "verdict", verdict.String(), "objects", stored.State().Count)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resource, c.stored = &r, stored
	return nil
}

// judged returns the verdict on what is stored.
func (c *collection) judged() (restore.Collection, error) {
	info, err := c.info(*c.resource)
	if err != nil {
		return restore.Collection{}, err
	}
	return c.versionChanged(restore.Judge(c.stored.Info(), info, c.stored.State()), c.stored.Info(), info), nil
}

// run keeps the collection in step until ctx ends, then applies what is queued.
func (c *collection) run(ctx context.Context, cluster *upstream.Cluster) error {
	verdict, err := c.judged()
	if err != nil {
		return err
	}
	c.mu.Lock()
	want := c.wanted
	c.mu.Unlock()
	queue := deltafifo.New(deltafifo.Options{
		Known: informer.Known{Collection: c.stored}, Clock: c.clock,
	})
	checkpoint := c.stored.State().Checkpoint
	queue.Start(checkpoint.RV)
	source := cluster.Source(upstream.SourceOptions{
		Resource: *c.resource, Namespace: c.ns,
		LabelSelector: want.entry.LabelSelector, FieldSelector: want.entry.FieldSelector,
		Prune: c.prune(), OnSkip: c.track.Skipped,
	})
	refl := reflector.New(reflector.Options{
		Name: c.id, Source: source, Queue: queue, Identity: cluster.Identity, Kind: c.resource.Kind,
		Guards:     []reflector.Guard{reflector.Canary(c.stored, source, c.log)},
		Schema:     c.schema(cluster),
		Checkpoint: checkpoint, Reason: verdict.Reason, Jitter: want.jitter, Elsewhere: c.elsewhere,
		ConfirmDeletions: want.relist.ConfirmDeletions,
		Observer:         phased{c.track, c}, Logger: c.log, Clock: c.clock,
	})
	c.mu.Lock()
	c.queue, c.source, c.refl = queue, source, refl
	c.mu.Unlock()
	loop := informer.New(informer.Options{
		Name: c.id, Queue: beating{queue, c.pulse}, Collection: c.stored, Flush: c.flush, Observer: pulsing{c.track, c.pulse}, Logger: c.log, Clock: c.clock,
	})
	defer c.pulse.end() // whatever it was doing
	return informer.Drive(ctx, refl, queue, loop)
}

// schema returns how to ask for the schema of a custom resource. Who may not read the
// definition is not told when it changes, which is logged once.
func (c *collection) schema(cluster *upstream.Cluster) func(context.Context) (string, error) {
	resource, told := *c.resource, false
	return func(ctx context.Context) (string, error) {
		schema, err := cluster.Schema(ctx, resource)
		if upstream.Kind(err) != upstream.Forbidden {
			return schema, err
		}
		if !told {
			told = true
			c.log.Warn("the resource's definition can't be read, so a change of its schema is not noticed: grant get on customresourcedefinitions", "error", upstream.Described(err))
		}
		return "", nil
	}
}

// listPending says that a list is on its way into the store: what is stored is
// what was there before it.
func (c *collection) listPending() bool {
	c.mu.Lock()
	queue := c.queue
	c.mu.Unlock()
	return queue != nil && queue.ListPending()
}
