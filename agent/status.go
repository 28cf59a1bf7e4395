package agent

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/localapi/statuspage"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/upstream"
)

// fillStatus adds what only the running agent knows to what the database tells.
func (a *Agent) fillStatus(s *localapi.Status) {
	s.Agent = &localapi.AgentStatus{
		Version: a.opts.Version, PID: os.Getpid(), Started: a.started,
		Server: a.server(),
	}
	a.mu.Lock()
	s.Agent.ConfigLoaded, s.Agent.ConfigProblem = a.loaded.UTC(), a.refusal
	a.mu.Unlock()
	stats := a.db.Stats()
	if stats.ReadError != nil {
		s.Store.ReadProblem = fmt.Sprintf("%v (%d times)", stats.ReadError, stats.ReadFaults)
	}
	if a.verdict.Outcome == restore.Quarantined {
		s.Store.Quarantined = a.verdict.Reason
	}
	if stats.FlushError != nil {
		s.Store.Problem = stats.FlushError.Error()
	}
	s.Snapshots = a.snapshots.Status()
	byID := map[string]int{}
	for i, c := range s.Collections {
		byID[c.ID] = i
	}
	for _, c := range a.all() {
		i, ok := byID[c.ID]
		if !ok {
			// Configured, and the server was not asked yet what it is.
			i = len(s.Collections)
			entry := c.Configured()
			s.Collections = append(s.Collections, localapi.Collection{
				ID: c.ID, Group: entry.Resource.Group, Version: entry.Resource.Version, Resource: entry.Resource.Resource,
				Namespace: c.Namespace, LabelSelector: entry.LabelSelector, FieldSelector: entry.FieldSelector,
				Indexes: []string{},
			})
		}
		stats := c.Tracker.Stats()
		a.fillCollection(&s.Collections[i], c, stats)
		if s.Collections[i].InStep {
			s.Agent.Connected = true
		}
		if stats.Store != nil {
			s.Store.Problem = stats.Store.Error()
		}
	}
	slices.SortFunc(s.Collections, func(x, y localapi.Collection) int { return strings.Compare(x.ID, y.ID) })
	if s.Agent.Connected {
		return
	}
	for _, c := range s.Collections {
		if c.Problem != "" {
			s.Agent.Problem = c.Problem
			return
		}
	}
}

// statusPage is the status for a browser; the bare one is for everybody on this machine.
func (a *Agent) statusPage(bare bool) http.Handler {
	node, _ := os.Hostname() // without a name the page has none
	return statuspage.Handler(statuspage.Options{Source: a.source, Node: node, Bare: bare, Done: a.stopping})
}

func (a *Agent) fillCollection(c *localapi.Collection, from *collection.Collection, stats collection.Stats) {
	c.Phase = string(stats.Phase)
	c.InStep = stats.Phase == reflector.PhaseWatching && c.Synced && !from.ListPending()
	c.Verdict = stats.Verdict
	c.Untrusted = string(from.Untrusted(stats))
	c.Resumes = stats.Resumes
	c.EventsByMinute = stats.Hour
	for reason, n := range stats.Lists {
		if c.Relists == nil {
			c.Relists = map[string]int64{}
		}
		c.Lists += n
		c.Relists[string(reason)] = n
	}
	for _, n := range stats.Events {
		c.Events += n
	}
	if stats.Listing != "" {
		c.ListRead, c.ListRemaining = stats.Read, stats.Remaining
	}
	c.DamagedRecords, _ = a.damages.Count(from.ID)
	c.Verification, c.Purged = stats.Verification, stats.Purge
	if !c.InStep { // else the next look of the purges forgets it
		c.RefusedSeconds = stats.ForbiddenFor.Seconds()
	}
	if stats.Problem != nil {
		c.Problem, c.ProblemKind = from.Hint(stats.Problem), string(upstream.Kind(stats.Problem))
	}
	now := a.clock.Now()
	if stats.LastStep.After(c.Proven) {
		c.Proven = stats.LastStep
	}
	switch {
	case c.InStep:
		c.Proven, c.AgeSeconds = now, 0
	case c.Proven.IsZero():
		c.AgeSeconds = 0
	default:
		// A clock that was set back must not make data younger than now.
		c.AgeSeconds = max(0, now.Sub(c.Proven).Seconds())
	}
}

// describe is a collection's status without asking the database.
func (a *Agent) describe(c *collection.Collection, stats collection.Stats) localapi.Collection {
	var s localapi.Collection
	if stored, _, _, _ := c.Live(); stored != nil {
		state := stored.State()
		s.Synced, s.Objects, s.Bytes, s.Proven = state.Synced, state.Count, state.Bytes, state.Proven()
	}
	a.fillCollection(&s, c, stats)
	return s
}

func (a *Agent) server() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cluster == nil {
		return ""
	}
	return a.cluster.Server()
}
