package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/snapcache/snapcache/localapi"
)

// printStatus prints a status, freshness first.
func printStatus(w io.Writer, s *localapi.Status) error {
	if err := writeStrings(w, s.Headline(), "\n\n"); err != nil {
		return err
	}
	t := newTable(w, "COLLECTION", "STATE", "FRESHNESS", ">OBJECTS", ">SIZE", ">EVENTS", ">RESUMES", ">LISTS", "LAST LIST")
	for _, c := range s.Collections {
		objects, size := sizes(c)
		state := c.Phase
		if progress := c.Progress(); progress != "" {
			state += ": " + progress
		}
		t.row(c.ID, state, c.Freshness(), objects, size, humanCount(c.Events), humanCount(c.Resumes), humanCount(c.Lists), listed(c))
	}
	if err := t.flush(); err != nil {
		return err
	}
	return writeLines(w, append(alarmLines(s), verifiedLine(s.Collections), storeLine(s.Store), snapshotLine(s.Snapshots), agentLine(s.Agent))...)
}

// verifiedLine reports the newest comparisons with the server that found no difference. The others
// are alarms.
func verifiedLine(collections []localapi.Collection) string {
	same, oldest := int64(0), 0.0
	for _, c := range collections {
		if v := c.Verification; v != nil && v.Problem == "" && v.Left() == 0 {
			same, oldest = same+1, max(oldest, time.Since(v.Time).Seconds())
		}
	}
	if same == 0 {
		return ""
	}
	return fmt.Sprintf("%s verified within %s: the same as the server's", plural(same, "collection", "collections"), localapi.Age(oldest))
}

// alarmLines returns a line for each alarm.
func alarmLines(s *localapi.Status) []string {
	var lines []string
	for _, a := range s.Alarms() {
		lines = append(lines, a.String())
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
	if server := a.ServerText(); server != "" {
		parts = append(parts, "server "+server)
	}
	return strings.Join(parts, ", ")
}
