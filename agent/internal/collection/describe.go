package collection

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// describeSoon is the greatest delay of the first reading after a start: a fleet may start at once.
	describeSoon = 30 * time.Second

	// discoveryLag is how far a server's discovery documents may be behind its definitions.
	discoveryLag = 5 * time.Second

	// refreshEvery is the least time between two readings because of requests.
	refreshEvery = 5 * time.Second

	// refreshTimeout is how long a request waits for a reading.
	refreshTimeout = 2 * time.Second
)

// errRedefined means that the server serves the resource in another way than the stored objects were
// listed in, so that the collection begins again.
var errRedefined = errors.New("its definition has changed on the server, and it is being listed again: repeat the command afterwards")

// Description returns the server's description of the resource, as it was last read.
func (c *Collection) Description() store.Description { return *c.api.description.Load() }

// loadDescription reads the stored description, if there is one.
func (c *Collection) loadDescription() error {
	v, err := c.opts.DB.View(c.ID)
	if errors.Is(err, store.ErrNoCollection) {
		return nil
	}
	if err != nil {
		return err
	}
	defer v.Close()
	d, err := v.Description()
	c.setDescription(d)
	return err
}

// setDescription makes d the description that is served, and reports whether it differs from the one
// before. The watches of clients then end, as at a kube-apiserver, and begin again under the new one.
func (c *Collection) setDescription(d store.Description) bool {
	if equality.Semantic.DeepEqual(c.Description(), d) {
		return false
	}
	c.api.description.Store(&d)
	c.api.served.Events.Wake()
	return true
}

// describe reads the definition until ctx ends: soon after the start, each day, and when it is asked to.
// A custom resource's definition is read before each resume and list, too, see schema.
func (c *Collection) describe(ctx context.Context) {
	first := time.Duration(0)
	if c.Description().Singular != "" {
		first = wait.Jitter(describeSoon/2, 1)
	}
	sleep.Daily(ctx, c.opts.Clock, c.Log, first, c.api.look, func(ctx context.Context) error {
		if err := c.CheckDefinition(ctx); !errors.Is(err, errRedefined) {
			return upstream.Explain(err)
		}
		return nil
	})
}

// CheckDefinition reads the definition. If the stored objects were listed under another one, the
// collection lists again, and the error describes that.
func (c *Collection) CheckDefinition(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	d, err := c.definition(ctx)
	if err != nil {
		return err
	}
	stored := c.Live().Stored
	info := stored.Info()
	switch {
	case info.Kind != d.Kind, info.Namespaced != d.Namespaced:
		return errRedefined
	case d.Schema == "", d.Schema == stored.State().Schema:
		return nil
	case c.Watching():
		c.restart(nil) // the guards of the resume compare the schema
	}
	return errRedefined
}

// refresh reads the definition for a request that names something that is not known of the resource. It
// does nothing if the newest reading is seconds old, or the server can't be reached.
func (c *Collection) refresh(ctx context.Context) {
	if last := c.api.readAt.Load(); last != nil && c.opts.Clock.Since(*last) < refreshEvery || !c.Connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	if err := c.CheckDefinition(ctx); err != nil {
		c.Log.Debug("the definition was read for a request", "error", upstream.Explain(err))
	}
}

// definition reads the definition and keeps its content. One call at a time does, so that the newest
// answer counts. If the server serves the resource with another kind or scope, the collection begins
// again under the new ones.
func (c *Collection) definition(ctx context.Context) (d upstream.Definition, err error) {
	if err := c.api.reading.Acquire(ctx, 1); err != nil {
		return d, err
	}
	defer c.api.reading.Release(1)
	live := c.Live()
	if live.Source == nil || live.Stored == nil {
		return d, errNotRunning
	}
	if d, err = live.Source.Definition(ctx); err != nil {
		return d, err
	}
	is := c.Resource()
	if c.Live().Source != live.Source || is == nil {
		return d, errNotRunning // the answer is about a resource of before
	}
	now := c.opts.Clock.Now()
	c.api.readAt.Store(&now)
	if err := live.Stored.Describe(d.Description); err != nil {
		return d, err
	}
	was := c.Description()
	attributes := func(of store.Description) string { return c.attributes(live.Stored.Info(), of).Spec }
	again := c.opts.Attributes && attributes(was) != attributes(d.Description) // the history has to keep others
	if c.setDescription(d.Description) && was.Singular != "" {
		c.Log.Info("the definition of the resource has changed")
		again = true // the waits start over: the server has not failed, it has ended the watch for this
	}
	switch {
	case d.Resource != *is:
		c.redefine(*is, d.Resource)
	case again:
		c.restart(nil)
	}
	return d, nil
}

// redefine begins again as the resource that the server serves now.
func (c *Collection) redefine(was, is upstream.Resource) {
	c.Log.Warn("the server serves the resource in another way", "version", is.GVR.Version, "kind", is.Kind, "namespaced", is.Namespaced,
		"wasVersion", was.GVR.Version, "wasKind", was.Kind, "wasNamespaced", was.Namespaced)
	c.restart(&is)
}

// attributes returns the index of the history for watches with selectors.
func (c *Collection) attributes(info store.Info, d store.Description) store.Index {
	return kubeapi.AttributesIndex(info, d, c.api.served.Events)
}

// schema returns a function that reads the definition of a custom resource, and returns its schema. The
// server ends a watch when the definition changes, so that this finds changes at once. If the server
// forbids the read of the definition, changes of the schema go unnoticed; that is logged once.
func (c *Collection) schema() func(context.Context) (string, error) {
	logged := false
	return func(ctx context.Context) (string, error) {
		if !upstream.MayBeCustom(c.Resource().GVR.Group) {
			return "", nil
		}
		d, err := c.definition(ctx)
		refused := d.Unread
		switch {
		case upstream.Classify(err) == upstream.Forbidden:
			refused, err = err, nil
		case errors.As(err, new(*upstream.NoResourceError)):
			err = nil // the next request to the resource reports it
		case err == nil && d.Schema == "": // its documents may lag behind the change that ended a watch
			c.opts.Clock.AfterFunc(discoveryLag, c.look)
		}
		if refused != nil && !logged {
			logged = true
			c.Log.Warn("the resource's definition can't be read, so a change of its schema is not noticed: "+
				"grant get on customresourcedefinitions", "error", upstream.Explain(refused))
		}
		if err == nil {
			err = ctx.Err() // the collection begins again
		}
		return d.Schema, err
	}
}

// look asks for a reading of the definition.
func (c *Collection) look() {
	select {
	case c.api.look <- struct{}{}:
	default:
	}
}
