package collection

import (
	"time"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/upstream"
)

// rejection is whether the server rejects a collection's requests (401 or 403), so that the log
// has a line for each change of that and none for each retry.
type rejection struct {
	kind upstream.ErrorClass // empty while they are accepted
}

// observe takes a change of phase, and reports whether requests have begun to be rejected, or are
// accepted again. An outage in between is no change: it shows nothing about the rights.
func (r *rejection) observe(p reflector.Phase, err error) (begun, ended bool) {
	kind := upstream.Classify(err)
	switch {
	case p == reflector.PhaseWatching:
		ended = r.kind != ""
		r.kind = ""
	case p == reflector.PhaseWaiting && (kind == upstream.Unauthorized || kind == upstream.Forbidden):
		begun = r.kind != kind
		r.kind = kind
	}
	return begun, ended
}

// logRejection logs whether requests have begun to be rejected, or are accepted again. Only the
// collection's own goroutine calls it.
func (c *Collection) logRejection(p reflector.Phase, err error) {
	begun, ended := c.rejection.observe(p, err)
	switch {
	case ended:
		c.Log.Info("the server accepts the requests again")
	case begun:
		log := c.Log
		if left, due := c.purgeIn(err); due {
			log = log.With("purgeIn", left)
		}
		log.Warn("the server rejects the requests", "error", upstream.Explain(err))
	}
}

// purgeIn returns for how long the server has still to forbid the collection before what is stored
// of it is purged. It reports false if it is not to be purged for this problem.
func (c *Collection) purgeIn(problem error) (time.Duration, bool) {
	if !c.Configured().Resource.IsSecrets() {
		return 0, false
	}
	c.mu.Lock()
	stored, resource := c.stored, c.resource
	c.mu.Unlock()
	if stored == nil || !stored.State().Synced || !upstream.IsForbidden(problem, resource.GVR.GroupResource()) {
		return 0, false
	}
	return max(0, c.opts.PurgeAfter()-c.Tracker.Stats().ForbiddenFor), true
}

// Hint describes a problem with the server in one line: what is wrong, what to do, and what happens
// if nothing is done.
func (c *Collection) Hint(problem error) string {
	text := upstream.Describe(problem)
	if left, due := c.purgeIn(problem); due {
		text += "; what is stored of it is deleted in " + localapi.Age(left.Seconds()) + " if that stays so (secrets.purgeAfter)"
	}
	return text
}
