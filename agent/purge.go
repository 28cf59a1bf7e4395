package agent

import (
	"context"
	"errors"
	"time"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/agent/internal/sleep"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// purgeLooks is how often it is looked, in the time after which Secrets are purged,
	// whether they are still forbidden; at least every purgeLookMost. Each look that finds
	// them so is noted in the file.
	purgeLooks    = 48
	purgeLookMost = 30 * time.Minute
)

// purges deletes Secrets that the server has not let this node read for as long as the
// configuration says, until ctx ends. It is the only failure that deletes: a node
// from which the right to a Secret was taken is not to keep it.
func (a *Agent) purges(ctx context.Context) {
	last := a.clock.Now()
	denied := map[*collection.Collection]bool{} // found forbidden by the last look
	a.scrub(ctx)
	for {
		reloaded := a.nextReload()
		after := a.config().Secrets.PurgeAfter.Duration
		every := min(after/purgeLooks, purgeLookMost)
		if sleep.UnlessWoken(ctx, a.clock, every, reloaded) != nil {
			return
		}
		// What has passed by the clock that nobody sets: many a device comes up in 1970.
		passed := min(a.clock.Since(last), 2*every)
		last = a.clock.Now()
		still := map[*collection.Collection]bool{}
		for _, c := range a.all() {
			if c.Configured().Resource.IsSecrets() {
				still[c] = a.considerPurge(ctx, c, passed, after, denied[c])
			}
		}
		denied = still
		a.scrub(ctx)
	}
}

// considerPurge checks whether a collection is still forbidden, and purges it if it has been for after
// and the server confirms it. wasDenied is what the last call returned: whether it was forbidden.
func (a *Agent) considerPurge(ctx context.Context, c *collection.Collection, passed, after time.Duration, wasDenied bool) (denied bool) {
	stored, source, _, ok := c.Live()
	if stored == nil || !ok || !stored.State().Synced {
		return wasDenied // there is nothing to purge
	}
	resource := c.Resource().GVR.GroupResource()
	db, durable := a.db.(*bolt.DB)
	now := c.Tracker.Stats()
	forbiddenFor := now.ForbiddenFor
	switch {
	case now.Phase == reflector.PhaseWatching:
		forbiddenFor, denied = 0, false
	case !upstream.Denied(now.Problem, resource):
		denied = wasDenied
	default:
		denied = true
		if wasDenied {
			forbiddenFor += passed
		}
	}
	if forbiddenFor != now.ForbiddenFor && durable {
		if err := db.SetForbiddenFor(c.ID, forbiddenFor); err != nil {
			c.Log.Warn("for how long it has been forbidden could not be noted", "error", err)
		}
	}
	c.Tracker.SetForbiddenFor(forbiddenFor)
	if forbiddenFor < after {
		return denied
	}
	limited, cancel := context.WithTimeout(ctx, collection.RequestTimeout)
	defer cancel()
	if err := source.Probe(limited, "0"); !upstream.Denied(err, resource) {
		return denied // not known now; if it is allowed the watch is soon up
	}
	objects := stored.State().Count
	err := c.Pause(ctx, func() error {
		if durable {
			return db.Purge(c.ID)
		}
		return a.db.Drop(c.ID)
	})
	if ctx.Err() != nil {
		return denied
	}
	if err != nil {
		c.Log.Error("what is forbidden could not be deleted; it is tried again", "error", err)
		return denied
	}
	c.Tracker.Purged(localapi.Purge{Time: a.clock.Now().UTC(), Objects: objects})
	c.Log.Error("PURGED: the server has not let it be read for so long that all that was stored of it was deleted; snapshots from before still have it",
		"objects", objects, "after", after)
	return false
}

// scrub rewrites the file where something was purged from it.
func (a *Agent) scrub(ctx context.Context) {
	db, durable := a.db.(*bolt.DB)
	if !durable {
		return
	}
	for {
		due, err := db.SanitizeDue()
		if err != nil || !due {
			return
		}
		if err = db.Sanitize(ctx); err == nil {
			a.log.Info("the database was rewritten, so that nothing of what was purged is left in it")
			return
		}
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, bolt.ErrBusy) {
			a.log.Error("the database could not be rewritten, so its free pages still have some of what was purged; it is tried again", "error", err)
			return
		}
		if sleep.For(ctx, a.clock, time.Second) != nil {
			return
		}
	}
}
