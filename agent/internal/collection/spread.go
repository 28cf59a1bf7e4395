package collection

import "time"

const (
	// readSpread limits the wait before a list after a 410 if there are readers of the collection.
	readSpread = 2 * time.Second

	// If there are none, the list may wait spreadJitters times the jitter, half a minute by default, up to
	// longestSpread or the jitter itself.
	spreadJitters = 15
	longestSpread = 30 * time.Second
)

// spread returns the bound of the wait before a list after a 410, which a restarted server answers to all
// collections of all nodes at once. Those with readers come first.
func (c *Collection) spread(jitter time.Duration) func() time.Duration {
	return func() time.Duration {
		if c.api.served.Events.HasClients() || c.Tracker.Awaited() {
			return min(jitter, readSpread)
		}
		return max(jitter, min(spreadJitters*jitter, longestSpread))
	}
}
