// Package purge deletes Secrets that the server has forbidden this node for too long.
package purge

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const (
	// looks is how many times within secrets.purgeAfter a collection of Secrets is checked for
	// being still forbidden; at least every maxInterval. Each check that finds it forbidden writes
	// to the file.
	looks       = 48
	maxInterval = 30 * time.Minute
)

// Purger deletes Secrets that the server has forbidden this node to read for longer than
// secrets.purgeAfter. No other failure deletes objects: a node that lost the right to a Secret must
// not keep it.
type Purger struct {
	DB    store.DB
	Clock clock.Clock
	Log   *slog.Logger
	All   func() []*collection.Collection

	// After returns secrets.purgeAfter, and a channel that is closed when that may have changed.
	After func() (after time.Duration, changed <-chan struct{})
}

// Run purges until ctx ends.
func (p *Purger) Run(ctx context.Context) {
	last := p.Clock.Now()
	denied := map[*collection.Collection]bool{} // found forbidden by the last check
	p.sanitize(ctx)
	for {
		after, changed := p.After()
		every := min(after/looks, maxInterval)
		if sleep.UnlessWoken(ctx, p.Clock, every, changed) != nil {
			return
		}
		// Since is monotonic: a device's clock may start in 1970 and be set later. A check that
		// comes late counts for two intervals at most.
		passed := min(p.Clock.Since(last), 2*every)
		last = p.Clock.Now()
		still := map[*collection.Collection]bool{}
		for _, c := range p.All() {
			if c.Configured().Resource.IsSecrets() {
				still[c] = p.consider(ctx, c, passed, after, denied[c])
			}
		}
		denied = still
		p.sanitize(ctx)
	}
}

// consider checks whether a collection is still forbidden, and purges it once that has lasted for
// the duration after and the server confirms it. It returns whether the collection is forbidden;
// wasDenied is the result of the last call.
func (p *Purger) consider(ctx context.Context, c *collection.Collection, passed, after time.Duration, wasDenied bool) (denied bool) {
	live := c.Live()
	stored, source := live.Stored, live.Source
	if stored == nil || source == nil || !stored.State().Synced {
		return wasDenied // there is nothing to purge
	}
	db, durable := p.DB.(*bolt.DB)
	now := c.Tracker.Stats()
	forbiddenFor := now.ForbiddenFor
	switch {
	case now.Phase == reflector.PhaseWatching:
		forbiddenFor, denied = 0, false
	case !collection.ForbidsSecrets(now.Problem):
		denied = wasDenied
	default:
		denied = true
		if wasDenied {
			forbiddenFor += passed
		}
	}
	if forbiddenFor != now.ForbiddenFor && durable {
		if err := db.SetForbiddenFor(c.ID, forbiddenFor); err != nil {
			c.Log.Warn("could not store since when the collection is forbidden", "error", err)
		}
	}
	c.Tracker.SetForbiddenFor(forbiddenFor)
	if forbiddenFor < after {
		return denied
	}
	limited, cancel := context.WithTimeout(ctx, collection.RequestTimeout)
	defer cancel()
	if err := source.Probe(limited, "0"); !collection.ForbidsSecrets(err) {
		return denied // not known now; if the read is allowed, the watch is up soon
	}
	objects := stored.State().Count
	err := c.Pause(ctx, func() error {
		if durable {
			return db.Purge(c.ID)
		}
		return p.DB.Drop(c.ID)
	})
	if ctx.Err() != nil {
		return denied
	}
	if err != nil {
		c.Log.Error("could not delete the objects of a forbidden collection; retrying", "error", err)
		return denied
	}
	purged := localapi.Purge{Time: p.Clock.Now().UTC(), Objects: objects}
	c.Tracker.Purged(purged)
	c.Log.Error(purged.String()+"; earlier snapshots still have them", "objects", objects, "after", after)
	return false
}

// sanitize rewrites the file if something was purged from it. If that fails, the next check tries it
// again.
func (p *Purger) sanitize(ctx context.Context) {
	db, durable := p.DB.(*bolt.DB)
	if !durable {
		return
	}
	if due, err := db.SanitizeDue(); err != nil || !due {
		return
	}
	switch err := db.Sanitize(ctx); {
	case err == nil:
		p.Log.Info("the database was rewritten: the file holds nothing of the purged objects any more")
	case ctx.Err() == nil:
		p.Log.Error("could not rewrite the database, so its free pages may still hold purged objects; retrying", "error", err)
	}
}
