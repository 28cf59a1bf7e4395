package agent

import (
	"context"
	"time"

	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// versionEvery is how often a resource is looked up again that the server does not serve
// any more as it was.
const versionEvery = 10 * time.Second

// versions looks up resources again, until ctx ends, whose version is not served any
// more and not named in the configuration: another one may be. What is stored stays
// until the list of that is complete. Where the version is named, or there is none at
// all, what is stored stays for as long as that is so.
func (a *Agent) versions(ctx context.Context, cluster *upstream.Cluster) {
	for sleep(ctx, a.clock, versionEvery) == nil {
		for _, c := range a.all() {
			if c.configured().Resource.Version == "" {
				a.lookAgain(ctx, c, cluster)
			}
		}
	}
}

func (a *Agent) lookAgain(ctx context.Context, c *collection, cluster *upstream.Cluster) {
	now := c.track.get()
	c.mu.Lock()
	was := c.resource
	c.mu.Unlock()
	if was == nil || now.phase == reflector.PhaseWatching || upstream.Kind(now.problem) != upstream.Gone {
		return
	}
	limited, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	name := c.configured().Resource
	is, err := cluster.Resolve(limited, name.Resource, "", name.Group)
	if err != nil || is.GVR == was.GVR || is.Namespaced != was.Namespaced {
		return // the reflector says what it waits for
	}
	c.log.Warn("the server serves another version of the resource", "was", was.GVR.Version, "is", is.GVR.Version)
	err = c.interrupt(ctx, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.resource = &is
		return nil
	})
	if err != nil && ctx.Err() == nil {
		c.log.Warn("the other version can't be taken yet", "error", err)
	}
}

// versionChanged says schema-changed where nothing differs but the version, and the server
// chose that: the configuration names none.
func (c *collection) versionChanged(verdict restore.Collection, stored, want store.Info) restore.Collection {
	if verdict.Reason != store.ReasonScopeChanged || c.configured().Resource.Version != "" {
		return verdict
	}
	if stored.Version = want.Version; stored.Scope() == want.Scope() {
		verdict.Reason = store.ReasonSchemaChanged
	}
	return verdict
}
