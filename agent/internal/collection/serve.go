package collection

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// api is the part of a collection that serves the Kubernetes API.
type api struct {
	served      *kubeapi.Collection
	description atomic.Pointer[store.Description] // empty until it is known

	reading *semaphore.Weighted       // held by a reading of the definition
	readAt  atomic.Pointer[time.Time] // when the newest one was made; nil for none
	look    chan struct{}             // has a value if the definition is to be read soon
}

// errNoSource means that the collection has not run yet.
var errNoSource = errors.New("the server was not asked yet")

// newServed returns the collection for the Kubernetes API.
func (c *Collection) newServed() *kubeapi.Collection {
	c.api.description.Store(&store.Description{})
	c.api.reading, c.api.look = semaphore.NewWeighted(1), make(chan struct{}, 1)
	return &kubeapi.Collection{
		Info:        func() store.Info { return c.Live().Stored.Info() },
		Description: c.api.description.Load,
		View:        func() (store.View, error) { return c.Live().Stored.View() },
		State:       func() store.State { return c.Live().Stored.State() },
		Freshness:   func() kubeapi.Freshness { return c.freshness(c.Live().Stored) },
		Fault:       c.fault,
		Probe:       c.probe,
		Changed:     c.Tracker.NextChange,
		Refresh:     c.refresh,
		Events:      kubeapi.NewEvents("", c.opts.Clock),
		Flush:       func() error { return c.opts.DB.Flush() },
		Staleness: func() kubeapi.Staleness {
			s := c.Configured().Staleness
			return kubeapi.Staleness{Policy: kubeapi.Policy(s.Policy), MaxAge: s.MaxAge.Duration}
		},
	}
}

// Served returns the collection for the Kubernetes API, always the same; nil until the resource is
// known.
func (c *Collection) Served() *kubeapi.Collection {
	if c.Live().Stored == nil {
		return nil
	}
	return c.api.served
}

// firstAnswer is how long the server may take to name a resource before that counts as not known.
const firstAnswer = 3 * time.Second

// Unknown describes the resource as long as Served returns no collection.
func (c *Collection) Unknown() kubeapi.Unknown {
	name, problem := c.Configured().Resource, c.Tracker.Stats().Problem
	u := kubeapi.Unknown{GroupResource: name.GroupResource(), Version: name.Version, Problem: c.Hint(problem)}
	if unread, ok := errors.AsType[*upstream.UnreadError](problem); ok {
		u.Version = unread.GV.Version
	}
	if problem == nil && c.Tracker.Age() > firstAnswer {
		u.Problem = "it has not answered yet"
	}
	return u
}

// connectedFor is how long after its end a watch counts as connected, unless there was doubt: one ends each
// few minutes, and the next one begins at once.
const connectedFor = 5 * time.Second

func (c *Collection) freshness(stored store.Collection) kubeapi.Freshness {
	_, trusted := c.Tracker.Open(connectedFor)
	since, atLeast := c.Tracker.LastProven(c.opts.Clock.Now(), stored.State().Proven())
	return kubeapi.Freshness{Connected: trusted && !c.ListPending() && c.linked(), Since: since, AtLeast: atLeast}
}

// fault returns why the collection does not follow the server, for its readers. It takes too long for each request.
func (c *Collection) fault() string {
	stats, pending := c.Tracker.Stats(), c.ListPending()
	switch reason := stats.Untrusted(pending); {
	case reason != "":
		return "the server has another state, which is not read yet (" + string(reason) + ")"
	case pending:
		return "the server's list is not read yet"
	}
	return upstream.Classify(stats.Problem).Fault()
}

// Connected reports whether the collection follows the server, without doubt.
func (c *Collection) Connected() bool {
	stored := c.Live().Stored
	return stored != nil && c.freshness(stored).Connected
}

// Reaches reports whether the collection follows the server, even if there is doubt about its watch: a
// request that is sent to the server shows by itself whether that answers.
func (c *Collection) Reaches() bool {
	stored := c.Live().Stored
	open, _ := c.Tracker.Open(connectedFor)
	return stored != nil && open && !c.ListPending() && c.linked()
}

// linked reports whether there is no doubt that the server answers. A watch over a silent link looks like one in which
// nothing changes.
func (c *Collection) linked() bool {
	source := c.Live().Source
	return source == nil || source.Link().Good()
}

// EndWatches ends the watches of clients: the collection is no longer configured.
func (c *Collection) EndWatches() { c.api.served.Events.End() }
