package collection

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// describeInterval is the time between two reads of what the server publishes about a resource. It
// changes when a CustomResourceDefinition does, and with the server's version.
const describeInterval = 24 * time.Hour

// Description returns what the server publishes about the resource, as it was last read.
func (c *Collection) Description() store.Description {
	if d := c.api.description.Load(); d != nil {
		return *d
	}
	return store.Description{}
}

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
	c.api.description.Store(&d)
	return err
}

// describe keeps the description current until ctx ends: it is read when it is missing, and each
// day.
func (c *Collection) describe(ctx context.Context, cluster *upstream.Cluster, stored store.Collection, r upstream.Resource) {
	backoff := wait.Backoff{Duration: time.Second, Cap: 10 * time.Minute, Factor: 2, Jitter: 0.5, Steps: 12}
	d := time.Duration(0)
	if c.Description().Singular != "" {
		d = wait.Jitter(describeInterval, 0.2)
	}
	for sleep.For(ctx, c.opts.Clock, d) == nil {
		if err := c.describeOnce(ctx, cluster, stored, r); err != nil {
			d = backoff.Step()
			c.Log.Debug("the resource's description can't be read; retrying", "wait", d.Round(time.Second), "error", upstream.Explain(err))
			continue
		}
		d = wait.Jitter(describeInterval, 0.2)
	}
}

func (c *Collection) describeOnce(ctx context.Context, cluster *upstream.Cluster, stored store.Collection, r upstream.Resource) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	description, err := cluster.Describe(ctx, r)
	if err != nil {
		return err
	}
	if err := stored.Describe(description); err != nil {
		return err
	}
	c.api.description.Store(&description)
	return nil
}
