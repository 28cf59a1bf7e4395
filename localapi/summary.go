package localapi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/snapcache/snapcache/internal/clocks"
)

// The words for the status of a cache, for service manager, commands, health checks and status
// page.

// staleAfter is the age in seconds from which data that is not caught up is an alarm. An ordinary
// reconnection, with jitter and backoff, takes less.
const staleAfter = 5 * 60

// CaughtUp is the word for a collection that has the server's state, as of the last answer.
const CaughtUp = "caught up"

// Stuck returns the words for a collection whose changes do not reach the store, for no known
// reason.
func Stuck(collection string) string {
	return "STUCK: changes of " + collection + " do not get into the store"
}

// String returns the purge in words.
func (p Purge) String() string {
	return "PURGED: the server forbids it: " + english.Plural(int(p.Objects), "object", "") + " deleted"
}

// Level is the severity of a fact. It is a CSS class too.
type Level string

// The levels.
const (
	Good Level = "good"
	Warn Level = "warn"
	Bad  Level = "bad"
)

// Alarm is a fact that a person may have to act on.
type Alarm struct {
	Level Level
	Where string // collections, or another part of the agent
	What  string
	Why   string // the cause; may be empty
}

// String returns the alarm in one line.
func (a Alarm) String() string {
	if a.Why == "" {
		return a.Where + ": " + a.What
	}
	return a.Where + ": " + a.What + ": " + a.Why
}

// Freshness is how fresh a whole cache is.
type Freshness struct {
	Level   Level
	Text    string // in a few words
	Content string // description of the cached objects; empty if nothing can be read
}

// Freshness summarises the collections.
func (s *Status) Freshness() Freshness {
	var objects int64
	var age float64
	unknown := false
	fresh, synced, all := 0, 0, len(s.Collections)
	for _, c := range s.Collections {
		switch {
		case !c.Synced:
			continue
		case c.CaughtUp:
			fresh++
		default:
			age, unknown = max(age, c.AgeSeconds), unknown || c.AgeUnknown
		}
		synced++
		objects += c.Objects
	}
	f := Freshness{Warn, "data is " + Age(age) + " old", english.Plural(int(objects), "object", "") + " in " + english.Plural(synced, "collection", "")}
	if unknown {
		f.Text = "data is " + unknownAge
	}
	switch {
	case all == 0:
		return Freshness{Warn, "nothing is cached yet", ""}
	case synced == 0:
		return Freshness{Warn, ErrNotSynced.Error(), ""}
	case fresh == all:
		f.Level, f.Text = Good, CaughtUp
		return f
	case fresh == synced:
		f.Text = fmt.Sprintf("%d of %d %v", all-synced, all, ErrNotSynced)
		return f
	case s.Agent != nil && !s.Agent.Connected:
		f.Text = "OFFLINE: " + f.Text
	}
	f.Content += fmt.Sprintf(", %d of %d %s", fresh, all, CaughtUp)
	if synced < all {
		f.Content += fmt.Sprintf(", %d %v", all-synced, ErrNotSynced)
	}
	return f
}

// The words that both the headline and the alarms have.
const notStored = "changes can't be stored"

// Words of the alarms that logs and commands have too.
const (
	ConfigRefused  = "the newest configuration was refused" // read, and not in force
	SnapshotFailed = "no snapshot could be made"
	NotCompared    = "could not be compared with the server"
	RepairFixes    = "snapcache verify --repair fixes it"
)

// Headline returns the status in one line, freshness first.
func (s *Status) Headline() string {
	f := s.Freshness()
	text := f.Text
	add := func(separator, what, why string) {
		if why != "" {
			text += separator + what + why
		}
	}
	add(": ", "", f.Content)
	if s.Agent != nil {
		add("; ", "waiting: ", s.Agent.Problem)
	}
	add("; ", notStored+": ", s.Store.Problem)
	if s.Agent != nil {
		add("; ", ConfigRefused+": ", s.Agent.ConfigProblem)
	}
	return text
}

// Alarms returns the alarms, the worst first; within a level, the whole agent's come before the
// collections'.
func (s *Status) Alarms() []Alarm {
	var all []Alarm
	add := func(on bool, l Level, where, what, why string) {
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
		all = append(all, Alarm{l, where, what, why})
	}
	add(s.Store.Problem != "", Bad, "store", notStored, s.Store.Problem)
	add(s.Store.ReadProblem != "", Bad, "store", "the disk fails to read parts of the file", s.Store.ReadProblem)
	add(s.Store.Quarantined != "", Warn, "store", "the file was set aside at the start", s.Store.Quarantined)
	if x := s.Snapshots; x != nil {
		add(x.Problem != "", Warn, "snapshots", SnapshotFailed, x.Problem)
	}
	if a := s.Agent; a != nil {
		add(a.ConfigProblem != "", Warn, "configuration", ConfigRefused, a.ConfigProblem)
	}
	for _, c := range s.Collections {
		old := c.Synced && !c.CaughtUp && c.Phase != phaseStored
		add(c.Corrupt, Bad, c.ID, "can't be read", c.Problem)
		add(!c.Corrupt && !c.Synced && c.Problem != "", Bad, c.ID, ErrNotSynced.Error(), c.Problem)
		add(old && c.AgeUnknown, Bad, c.ID, "data is "+unknownAge+": the clock is behind it", c.Problem)
		add(old && !c.AgeUnknown && c.AgeSeconds >= staleAfter, Bad, c.ID, "data is "+Roughly(c.AgeSeconds)+" old", c.Problem)
		add(old && c.AgeSeconds < staleAfter && c.Problem != "", Warn, c.ID, "not "+CaughtUp, c.Problem)
		add(c.Synced && c.Phase == phaseStored && c.Problem != "", Warn, c.ID, "can't be read completely", c.Problem)
		add(c.Untrusted != "", Warn, c.ID, "UNTRUSTED until it is listed", c.Untrusted)
		add(c.SkippedEvents, Warn, c.ID, "events with objects of another type were skipped: it is listed at the next start", "")
		add(c.CorruptRecords > 0, Bad, c.ID, english.Plural(int(c.CorruptRecords), "corrupt record", "")+" left out until fetched again", "")
		add(c.ForbiddenSeconds > 0, Warn, c.ID, "forbidden for "+Age(c.ForbiddenSeconds)+": the stored objects are deleted after secrets.purgeAfter", "")
		if p := c.Purged; p != nil {
			add(true, Warn, c.ID, p.String(), "")
		}
		if v := c.Verification; v != nil {
			add(v.Left() > 0, Bad, c.ID, fmt.Sprintf("DIFFERS from the server: %d missing, %d extra, %d stale", v.Missing, v.Extra, v.Stale), RepairFixes)
			add(v.Problem != "", Warn, c.ID, NotCompared, v.Problem)
		}
	}
	urgency := func(l Level) int { return slices.Index([]Level{Bad, Warn}, l) }
	slices.SortStableFunc(all, func(x, y Alarm) int { return urgency(x.Level) - urgency(y.Level) })
	return all
}

// State rates a collection, with the agent's activity if it is not caught up.
func (c Collection) State() (Level, string) {
	switch {
	case c.Corrupt:
		return Bad, "corrupt"
	case c.CaughtUp && c.Untrusted == "":
		return Good, CaughtUp
	case !c.Synced:
		return Warn, ErrNotSynced.Error() + ", " + c.Phase
	case c.AgeUnknown:
		return Bad, unknownAge + ", " + c.Phase
	case c.AgeSeconds >= staleAfter:
		return Bad, "stale, " + c.Phase
	case c.Untrusted != "":
		return Warn, "untrusted, " + c.Phase
	}
	return Warn, c.Phase
}

// Freshness returns how fresh a collection is, in words.
func (c Collection) Freshness() string {
	switch {
	case !c.Synced:
		return ErrNotSynced.Error()
	case c.CaughtUp:
		return CaughtUp
	case c.ageUnknown():
		return unknownAge
	}
	return Age(c.AgeSeconds) + " old"
}

// Age returns the age of a collection that is not caught up, empty for one that was never synced.
func (c Collection) Age() string {
	switch {
	case !c.Synced || c.CaughtUp:
		return ""
	case c.ageUnknown():
		return "unknown"
	}
	return Age(c.AgeSeconds)
}

// unknownAge is the words for data whose age is unknown.
const unknownAge = "of unknown age"

func (c Collection) ageUnknown() bool { return c.AgeUnknown || c.Proven.IsZero() && c.AgeSeconds == 0 }

// SetAge sets AgeSeconds and AgeUnknown. A collection that was never complete has no age.
func (c *Collection) SetAge(a clocks.Age) {
	c.AgeSeconds, c.AgeUnknown = a.Duration().Seconds(), !c.Proven.IsZero() && !a.Known()
	switch {
	case c.Proven.IsZero():
		c.AgeSeconds = 0
	case c.AgeUnknown:
		c.AgeSeconds = clocks.UnknownSeconds
	}
}

// Result returns the result of a comparison, in a few words.
func (v Verification) Result() string {
	switch {
	case v.Unsynced:
		return ErrNotSynced.Error()
	case v.Problem != "":
		return "not compared: " + v.Problem
	case v.Relisted:
		return "differed: listed again"
	case v.ManyDiffer:
		return "MANY DIFFER"
	case v.Left() > 0:
		return "DIFFERS"
	case v.Drift() > 0:
		return "repaired"
	case v.Undecided > 0:
		return fmt.Sprintf("same, except %s still undecided", english.Plural(int(v.Undecided), "key", ""))
	}
	return "same"
}

// Encryption returns how the file is encrypted, empty if it is not and need not be.
func (s StoreStatus) Encryption() string {
	var parts []string
	if s.EncryptionKey != "" {
		parts = append(parts, "encrypted with key "+s.EncryptionKey)
	}
	if s.EncryptionDue {
		parts = append(parts, "being rewritten under the configured key")
	}
	return strings.Join(parts, ", ")
}

// Summary returns the newest snapshot and the counts in words.
func (x *SnapshotStatus) Summary(now time.Time) string {
	newest := "none"
	if !x.Newest.IsZero() {
		newest = "newest " + Ago(now, x.Newest) + ", " + Size(x.Bytes)
	}
	return fmt.Sprintf("%s; %d made, %d failed since the start", newest, x.Made, x.Failed)
}

// Progress returns the progress of a list that is under way, empty if there is none.
func (c Collection) Progress() string {
	switch {
	case c.ListRead == 0 && c.ListRemaining <= 0:
		return ""
	case c.ListRemaining > 0:
		return humanize.Comma(c.ListRead) + " read, " + humanize.Comma(c.ListRemaining) + " to go"
	}
	return humanize.Comma(c.ListRead) + " read"
}

// Age formats seconds for people: "12s", "5m3s", "3h12m", "2d4h".
func Age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// Roughly formats an age like Age, but without seconds if it is a minute or more, so that the text
// does not change every second.
func Roughly(seconds float64) string {
	if seconds >= time.Minute.Seconds() && seconds < time.Hour.Seconds() {
		return fmt.Sprintf("%dm", int(seconds)/60)
	}
	return Age(seconds)
}

// Ago formats the time since t like Roughly.
func Ago(now, t time.Time) string {
	d := now.Sub(t)
	if d < -time.Minute {
		return "in the future: a clock is wrong, or was"
	}
	if d < time.Minute {
		return "just now"
	}
	return Roughly(d.Seconds()) + " ago"
}

// Size formats a number of bytes for people.
func Size(bytes int64) string { return humanize.IBytes(uint64(max(0, bytes))) }
