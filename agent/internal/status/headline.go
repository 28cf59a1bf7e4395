package status

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/localapi"
)

// Headline is a status in one line, freshness first.
func Headline(s *localapi.Status) string {
	var objects int64
	inStep, unsynced := 0, 0
	var age float64
	for _, c := range s.Collections {
		if !c.Synced {
			unsynced++
			continue
		}
		objects += c.Objects
		if c.InStep {
			inStep++
		} else {
			age = max(age, c.AgeSeconds)
		}
	}
	synced := len(s.Collections) - unsynced
	text := fmt.Sprintf("%s objects in %s", humanize.Comma(objects), english.Plural(synced, "collection", ""))
	switch {
	case unsynced == len(s.Collections):
		text = "never synced"
	case inStep == synced:
		text = "in step: " + text
	default:
		text = fmt.Sprintf("data is %s old: %s, %d of %d in step", localapi.Age(age), text, inStep, len(s.Collections))
	}
	if unsynced > 0 && unsynced < len(s.Collections) {
		text += fmt.Sprintf("; %d never synced", unsynced)
	}
	if s.Agent != nil && s.Agent.Problem != "" {
		text += "; waiting: " + s.Agent.Problem
	}
	if s.Store.Problem != "" {
		text += "; changes can't be stored: " + s.Store.Problem
	}
	if s.Agent != nil && s.Agent.ConfigProblem != "" {
		text += "; the newest configuration was refused: " + s.Agent.ConfigProblem
	}
	return text
}

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
