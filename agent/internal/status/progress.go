package status

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/localapi"
)

// Progress describes a list that is under way, "" if there is none.
func Progress(clock clock.PassiveClock, c *collection.Collection) string {
	stats := c.Tracker.Stats()
	if stats.Listing == "" {
		return ""
	}
	took := clock.Since(stats.ListSince).Seconds()
	rate := float64(stats.Read) / max(took, 0.001)
	text := fmt.Sprintf("%s (%s): %s objects, %s a second", c.ID, stats.Listing, humanize.Comma(stats.Read), humanize.Comma(int64(rate)))
	if stats.Remaining > 0 && rate > 0 {
		text += fmt.Sprintf(", %s to go, about %s", humanize.Comma(stats.Remaining), localapi.Age(float64(stats.Remaining)/rate))
	}
	return text
}
