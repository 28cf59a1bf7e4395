package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/snapcache/snapcache/localapi"
)

// printStatus prints a status, freshness first.
func printStatus(w io.Writer, s *localapi.Status) error {
	if err := writeStrings(w, headline(s), "\n\n"); err != nil {
		return err
	}
	t := newTable(w, "COLLECTION", "STATE", ">AGE", ">OBJECTS", ">SIZE", ">EVENTS", ">RESUMES", ">LISTS", "LAST LIST")
	for _, c := range s.Collections {
		objects, size := humanCount(c.Objects), humanBytes(c.Bytes)
		if !c.Synced {
			objects, size = "", ""
		}
		err := t.row(c.ID, state(c), collectionAge(c), objects, size, humanCount(c.Events), humanCount(c.Resumes), humanCount(c.Lists), listed(c))
		if err != nil {
			return err
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	lines := slices.Concat(problemLines(s.Collections), untrustedLines(s.Collections), skippedLines(s.Collections), damageLines(s.Collections), verifyLines(s.Collections), purgeLines(s.Collections))
	return writeLines(w, append(lines, storeLine(s.Store), snapshotLine(s.Snapshots), agentLine(s.Agent))...)
}

// headline summarises the freshness of the cache in one line.
func headline(s *localapi.Status) string {
	var objects int64
	inStep, unsynced := 0, 0
	var oldest localapi.Collection
	for _, c := range s.Collections {
		switch {
		case !c.Synced:
			unsynced++
			continue
		case c.InStep:
			inStep++
		case c.AgeSeconds >= oldest.AgeSeconds:
			oldest = c
		}
		objects += c.Objects
	}
	of := int64(len(s.Collections))
	server, problem, connected := "the server", "", true
	if s.Agent != nil {
		problem, connected = s.Agent.Problem, s.Agent.Connected
		if s.Agent.Server != "" {
			server = s.Agent.Server
		}
	}
	var text string
	switch {
	case of == 0:
		text = "nothing is cached yet"
	case inStep == len(s.Collections):
		return fmt.Sprintf("in step with %s: %s, %s", server, plural(of, "collection", "collections"), plural(objects, "object", "objects"))
	case unsynced == len(s.Collections):
		text = "never synced: nothing can be read yet"
	case !connected:
		text = fmt.Sprintf("OFFLINE: data is %s old (%s)", humanAge(oldest.AgeSeconds), plural(objects, "object", "objects"))
	default:
		text = fmt.Sprintf("%d of %s in step with %s", inStep, plural(of, "collection", "collections"), server)
		if oldest.ID != "" {
			text += fmt.Sprintf(", the oldest (%s) is %s old", oldest.ID, humanAge(oldest.AgeSeconds))
		}
	}
	if unsynced > 0 && unsynced < len(s.Collections) {
		text += fmt.Sprintf(", %d never synced", unsynced)
	}
	if problem != "" {
		text += ", agent is waiting: " + problem
	}
	return text
}

// state returns the agent's activity for a collection.
func state(c localapi.Collection) string {
	if c.Phase != "listing" {
		return c.Phase
	}
	text := "listing: " + humanCount(c.ListRead)
	if c.ListRead == 0 {
		return "listing"
	}
	if c.ListRemaining > 0 {
		text += " of about " + humanCount(c.ListRead+c.ListRemaining)
	}
	return text
}

// untrustedLines reports collections whose content will be replaced.
func untrustedLines(collections []localapi.Collection) []string {
	var lines []string
	for _, c := range collections {
		if c.Untrusted != "" {
			lines = append(lines, fmt.Sprintf("%s: UNTRUSTED until it is listed: %s", c.ID, c.Untrusted))
		}
	}
	return lines
}

// skippedLines returns the collections whose watch brought objects of another type.
func skippedLines(collections []localapi.Collection) []string {
	var lines []string
	for _, c := range collections {
		if c.SkippedEvents {
			lines = append(lines, c.ID+": events with objects of another type were skipped: it is listed at the next start")
		}
	}
	return lines
}

// damageLines reports corrupt records, which the agent can't serve.
func damageLines(collections []localapi.Collection) []string {
	var lines []string
	for _, c := range collections {
		if c.DamagedRecords > 0 {
			lines = append(lines, fmt.Sprintf("%s: %s left out until fetched again",
				c.ID, plural(c.DamagedRecords, "corrupt record is", "corrupt records are")))
		}
	}
	return lines
}

// verifyLines reports the newest comparisons with the server: a line for each that found a
// difference, and one line for the others.
func verifyLines(collections []localapi.Collection) []string {
	var lines []string
	same, oldest := int64(0), 0.0
	for _, c := range collections {
		v := c.Verification
		if v == nil {
			continue
		}
		age := max(0, time.Since(v.Time).Seconds())
		if v.Problem == "" && v.Left() == 0 {
			same, oldest = same+1, max(oldest, age)
			continue
		}
		line := fmt.Sprintf("%s: verified %s ago: %s", c.ID, humanAge(age), verificationResult(*v))
		if v.Problem == "" {
			line += fmt.Sprintf(" (%d missing, %d extra, %d stale): snapcache verify --repair fixes it", v.Missing, v.Extra, v.Stale)
		}
		lines = append(lines, line)
	}
	if same > 0 {
		lines = append(lines, fmt.Sprintf("%s verified within %s: the same as the server's", plural(same, "collection", "collections"), humanAge(oldest)))
	}
	return lines
}

// purgeLines reports deletions, past or pending, because the server forbids the resource.
func purgeLines(collections []localapi.Collection) []string {
	var lines []string
	for _, c := range collections {
		if p := c.Purged; p != nil {
			lines = append(lines, fmt.Sprintf("%s: PURGED at %s: the server forbids it, so %s deleted",
				c.ID, p.Time.Local().Format(time.DateTime), plural(p.Objects, "object was", "objects were")))
		}
		if c.RefusedSeconds > 0 {
			lines = append(lines, fmt.Sprintf("%s: forbidden by the server for %s: the stored objects are deleted after secrets.purgeAfter", c.ID, humanAge(c.RefusedSeconds)))
		}
	}
	return lines
}

// agentLine describes the agent's process.
func agentLine(a *localapi.AgentStatus) string {
	if a == nil {
		return ""
	}
	parts := []string{"agent: snapcache " + a.Version, fmt.Sprintf("pid %d", a.PID)}
	if !a.Started.IsZero() {
		parts = append(parts, "up since "+a.Started.Local().Format(time.DateTime))
	}
	if a.Server != "" {
		parts = append(parts, "server "+a.Server)
	}
	return strings.Join(parts, ", ")
}
