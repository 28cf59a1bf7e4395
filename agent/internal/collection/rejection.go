package collection

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/upstream"
)

// logRejection logs when the server begins to reject requests (401 or 403), and when it accepts them
// again, but no retry. An outage in between is no change: it shows nothing about permissions. Only
// the collection's own goroutine calls it.
func (c *Collection) logRejection(p reflector.Phase, err error) {
	class := upstream.Classify(err)
	switch {
	case p == reflector.PhaseWatching && c.rejected != "":
		c.rejected = ""
		c.Log.Info("the server accepts the requests again")
	case p == reflector.PhaseWaiting && (class == upstream.Unauthorized || class == upstream.Forbidden) && c.rejected != class:
		c.rejected = class
		log := c.Log
		if left, due := c.purgeIn(err); due {
			log = log.With("purgeIn", left)
		}
		log.Warn("the server rejects the requests", "error", upstream.Explain(err))
	}
}

// purgeIn returns the time until the collection's stored objects are purged if the server keeps
// forbidding the collection. It returns false if the problem does not lead to a purge.
func (c *Collection) purgeIn(problem error) (time.Duration, bool) {
	if !c.Configured().Resource.IsSecrets() {
		return 0, false
	}
	stored := c.Live().Stored
	if stored == nil || !stored.State().Synced || !ForbidsSecrets(problem) {
		return 0, false
	}
	return max(0, c.opts.PurgeAfter()-c.Tracker.Stats().ForbiddenFor), true
}

// Hint describes a problem with the server in one line: the fault, what to do, and the consequence of
// doing nothing.
func (c *Collection) Hint(problem error) string {
	text := upstream.Describe(problem)
	if left, due := c.purgeIn(problem); due {
		text += "; its stored objects are deleted in " + localapi.Age(left.Seconds()) + " if that stays so (secrets.purgeAfter)"
	}
	return text
}

// ForbidsSecrets reports whether the server itself does not allow the agent to read Secrets.
func ForbidsSecrets(problem error) bool {
	return upstream.IsForbidden(problem, schema.GroupResource{Resource: "secrets"})
}
