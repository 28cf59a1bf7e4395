package statuspage

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/snapcache/snapcache/localapi"
)

// staleAfter is the age in seconds from which data that is not caught up is an alarm. An ordinary
// reconnection, with jitter and backoff, takes less.
const staleAfter = 5 * 60

// level is the severity of a fact. It is a CSS class too.
type level string

const (
	good level = "good"
	warn level = "warn"
	bad  level = "bad"
)

// alarm is a fact that a person may have to act on.
type alarm struct {
	Level level
	Where string // collections, or another part of the agent
	What  string
	Why   string // the cause; may be empty
}

// alarms returns the alarms, the worst first; within a level, those of the whole agent come before
// those of collections.
func alarms(s *localapi.Status) []alarm {
	var all []alarm
	add := func(on bool, l level, where, what, why string) {
		if !on {
			return
		}
		// A problem that all collections have, such as no network, is shown once.
		for i, a := range all {
			if a.Level == l && a.What == what && a.Why == why {
				all[i].Where += ", " + where
				return
			}
		}
		all = append(all, alarm{l, where, what, why})
	}
	add(s.Store.Problem != "", bad, "store", "changes can't be stored", s.Store.Problem)
	add(s.Store.ReadProblem != "", bad, "store", "the disk fails to read parts of the file", s.Store.ReadProblem)
	add(s.Store.Quarantined != "", warn, "store", "the file was set aside at the start", s.Store.Quarantined)
	if x := s.Snapshots; x != nil {
		add(x.Problem != "", warn, "snapshots", "the last one could not be made", x.Problem)
	}
	for _, c := range s.Collections {
		add(c.Damaged, bad, c.ID, "can't be read", c.Problem)
		add(!c.Damaged && !c.Synced && c.Problem != "", bad, c.ID, "never synced", problem(c))
		add(c.Synced && !c.InStep && c.AgeSeconds >= staleAfter, bad, c.ID, "data is "+roughly(c.AgeSeconds)+" old", problem(c))
		add(c.Synced && !c.InStep && c.AgeSeconds < staleAfter && c.Problem != "", warn, c.ID, "out of step", problem(c))
		add(c.Untrusted != "", warn, c.ID, "the stored objects are not the server's any more; a list will replace them", c.Untrusted)
		add(c.DamagedRecords > 0, bad, c.ID, english.Plural(int(c.DamagedRecords), "corrupt record", "")+", left out of all answers", "")
		add(c.RefusedSeconds > 0, warn, c.ID, "forbidden for "+localapi.Age(c.RefusedSeconds)+": all of it will be deleted", "")
		if c.Purged != nil {
			add(true, warn, c.ID, fmt.Sprintf("%s deleted because the server forbids them", english.Plural(int(c.Purged.Objects), "object", "")), "")
		}
		if v := c.Verification; v != nil {
			add(v.Left() > 0, bad, c.ID, "differs from the server: "+drift(v), "snapcache verify --repair fixes it")
			add(v.Problem != "", warn, c.ID, "could not be compared with the server", v.Problem)
		}
	}
	slices.SortStableFunc(all, func(x, y alarm) int { return urgency(x.Level) - urgency(y.Level) })
	return all
}

func urgency(l level) int { return slices.Index([]level{bad, warn}, l) }

// problem returns why a collection is not caught up, with the class of the problem if its text is
// hidden.
func problem(c localapi.Collection) string {
	if c.Problem == elsewhere && c.ProblemKind != "" {
		return c.ProblemKind + "; " + elsewhere
	}
	return c.Problem
}

func drift(v *localapi.Verification) string {
	return fmt.Sprintf("%d missing, %d extra, %d stale", v.Missing, v.Extra, v.Stale)
}
