package collection

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// versionEvery is the time between two lookups of a resource whose version the server no longer
// serves.
const versionEvery = 10 * time.Second

// FollowVersions looks up, until ctx ends, resources whose version the server no longer serves: it
// may serve another one. The stored objects stay until the list of the other version is complete.
// If the server serves no version, they stay. If the configuration names the version, they stay
// too, and the resource is not looked up.
func FollowVersions(ctx context.Context, c clock.Clock, cluster *upstream.Cluster, all func() []*Collection) {
	for sleep.For(ctx, c, versionEvery) == nil {
		for _, c := range all() {
			if c.Configured().Resource.Version == "" {
				c.followVersion(ctx, cluster)
			}
		}
	}
}

func (c *Collection) followVersion(ctx context.Context, cluster *upstream.Cluster) {
	stats, was := c.Tracker.Stats(), c.Resource()
	if was == nil || stats.Phase == reflector.PhaseWatching || upstream.Classify(stats.Problem) != upstream.Gone {
		return
	}
	limited, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	name := c.Configured().Resource
	is, err := cluster.Resolve(limited, name.Resource, "", name.Group)
	if err != nil || is.GVR == was.GVR || is.Namespaced != was.Namespaced {
		return // the reflector reports what it waits for
	}
	c.Log.Warn("the server serves another version of the resource", "was", was.GVR.Version, "is", is.GVR.Version)
	err = c.Pause(ctx, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.resource = &is
		return nil
	})
	if err != nil && ctx.Err() == nil {
		c.Log.Warn("can't change to the other version yet; retrying", "error", err)
	}
}

// versionChanged turns the reason of a verdict into schema-changed if only the version differs and
// the server chose it, because the configuration names none.
func (c *Collection) versionChanged(verdict restore.Collection, stored, want store.Info) restore.Collection {
	if verdict.Reason != store.ReasonScopeChanged || c.Configured().Resource.Version != "" {
		return verdict
	}
	if stored.Version = want.Version; stored.Scope() == want.Scope() {
		verdict.Reason = store.ReasonSchemaChanged
	}
	return verdict
}
