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

// Description returns what the server publishes about the resource, as it was last read.
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
	c.api.description.Store(&d)
	return err
}

// describe keeps the description current until ctx ends: it is read when it is missing, and each
// day. It changes when a CustomResourceDefinition does, and with the server's version.
func (c *Collection) describe(ctx context.Context, cluster *upstream.Cluster, stored store.Collection, r upstream.Resource) {
	first := time.Duration(0)
	if c.Description().Singular != "" {
		first = wait.Jitter(24*time.Hour, 0.2)
	}
	sleep.Daily(ctx, c.opts.Clock, c.Log, first, func(ctx context.Context) error {
		return upstream.Explain(c.describeOnce(ctx, cluster, stored, r))
	})
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
