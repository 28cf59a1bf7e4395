package agent

import (
	"context"
	"errors"
	"time"

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
	a.scrub(ctx)
	for {
		reloaded := a.nextReload()
		after := a.config().Secrets.PurgeAfter.Duration
		every := min(after/purgeLooks, purgeLookMost)
		if sleepUnlessWoken(ctx, a.clock, every, reloaded) != nil {
			return
		}
		// What has passed by the clock that nobody sets: many a device comes up in 1970.
		passed := min(a.clock.Since(last), 2*every)
		last = a.clock.Now()
		for _, c := range a.all() {
			if c.configured().Resource.IsSecrets() {
				a.considerPurge(ctx, c, passed, after)
			}
		}
		a.scrub(ctx)
	}
}

// considerPurge looks whether a collection is still forbidden, and purges it where it has
// been for so long and the server says so once more.
func (a *Agent) considerPurge(ctx context.Context, c *collection, passed, after time.Duration) {
	c.mu.Lock()
	stored, source, resolved := c.stored, c.source, c.resource
	c.mu.Unlock()
	if stored == nil || source == nil || !stored.State().Synced {
		return // there is nothing of it
	}
	resource := resolved.GVR.GroupResource()
	db, durable := a.db.(*bolt.DB)
	now := c.track.get()
	refused := now.refused
	switch denied := upstream.Denied(now.problem, resource); {
	case now.phase == reflector.PhaseWatching:
		refused = 0
	case denied && !c.denied:
		c.denied = true
	case denied:
		refused += passed
	}
	if now.phase == reflector.PhaseWatching {
		c.denied = false
	}
	if refused != now.refused && durable {
		if err := db.SetForbiddenFor(c.id, refused); err != nil {
			c.log.Warn("for how long it has been forbidden could not be noted", "error", err)
		}
	}
	c.track.note(func(s *seen) { s.refused = refused })
	if refused < after {
		return
	}
	limited, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	if err := source.Probe(limited, "0"); !upstream.Denied(err, resource) {
		return // it can't be told now; where it is allowed the watch is soon up
	}
	objects := stored.State().Count
	err := c.interrupt(ctx, func() error {
		if durable {
			return db.Purge(c.id)
		}
		return a.db.Drop(c.id)
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		c.log.Error("what is forbidden could not be deleted; it is tried again", "error", err)
		return
	}
	c.denied = false
	c.track.note(func(s *seen) {
		s.refused = 0
		s.purges++
		s.purge = &localapi.Purge{Time: a.clock.Now().UTC(), Objects: objects}
	})
	c.log.Error("PURGED: the server has not let it be read for so long that all that was stored of it was deleted; snapshots from before still have it",
		"objects", objects, "after", after)
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
		if sleep(ctx, a.clock, time.Second) != nil {
			return
		}
	}
}
