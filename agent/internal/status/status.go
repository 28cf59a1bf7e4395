package status

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// Options are what a Reporter reads.
type Options struct {
	Version string // the program's
	Started time.Time
	DB      store.DB
	Refused error // why the database is in memory, although it should be a file; nil if it is where it should be
	Verdict restore.File
	Clock   clock.PassiveClock

	Config    func() *config.AgentConfiguration // in force
	All       func() []*collection.Collection
	Corrupt   func(id string) (corrupt, found int64) // records of a collection: now, and ever
	Snapshots func() *localapi.SnapshotStatus        // nil for none
	Cluster   *upstream.Cluster

	API *kubeapi.Metrics
	// Certificate returns the certificate of the Kubernetes API's address; nil for none.
	Certificate func() *x509.Certificate

	// Loaded returns when the configuration in force was read, and why the newest one is not in
	// force, empty if it is.
	Loaded func() (loaded time.Time, refusal string)

	// Stalled describes the stuck collection; empty if none is.
	Stalled func() string
}

// Reporter reads the state of an agent.
type Reporter struct{ opts Options }

// New returns a Reporter.
func New(opts Options) *Reporter { return &Reporter{opts} }

// Fill adds the facts of the running agent to a status read from the database.
func (r *Reporter) Fill(s *localapi.Status) {
	s.Agent = &localapi.AgentStatus{
		Version: r.opts.Version, PID: os.Getpid(), Started: r.opts.Started,
		Server: r.opts.Cluster.Server(), Fallback: r.opts.Cluster.FellBack(),
		SilentSeconds: r.opts.Cluster.Link().Silent().Seconds(),
	}
	loaded, refusal := r.opts.Loaded()
	s.Agent.ConfigLoaded, s.Agent.ConfigProblem = loaded.UTC(), refusal
	for _, p := range r.opts.API.Programs() {
		s.Agent.Programs = append(s.Agent.Programs, localapi.Program(p))
	}
	stats := r.opts.DB.Stats()
	if stats.ReadError != nil {
		s.Store.ReadProblem = fmt.Sprintf("%v (%d times)", stats.ReadError, stats.ReadFaults)
	}
	if r.opts.Verdict.Outcome == restore.Quarantined {
		s.Store.Quarantined = r.opts.Verdict.Reason
	}
	if err := cmp.Or(stats.FlushError, r.opts.Refused); err != nil {
		s.Store.Problem = err.Error()
	}
	s.Snapshots = r.opts.Snapshots()
	for _, c := range r.opts.All() {
		i := slices.IndexFunc(s.Collections, func(x localapi.Collection) bool { return x.ID == c.ID })
		if i < 0 {
			// Configured, and the server has not named the resource yet.
			i = len(s.Collections)
			entry := c.Configured()
			s.Collections = append(s.Collections, localapi.Collection{
				ID: c.ID,
				Scope: localapi.Scope{
					Group: entry.Resource.Group, Version: entry.Resource.Version, Resource: entry.Resource.Resource,
					Namespace: c.Namespace, LabelSelector: entry.LabelSelector, FieldSelector: entry.FieldSelector,
				},
				Indexes: []string{},
			})
		}
		stats := c.Tracker.Stats()
		r.fillCollection(&s.Collections[i], c, stats)
		if s.Collections[i].CaughtUp {
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

func (r *Reporter) fillCollection(c *localapi.Collection, from *collection.Collection, stats collection.Stats) {
	c.Phase = string(stats.Phase)
	c.CaughtUp = stats.CaughtUp(c.Synced, from.ListPending())
	c.Verdict = stats.Verdict
	c.Untrusted = string(stats.Untrusted(from.ListPending()))
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
	c.CorruptRecords, _ = r.opts.Corrupt(from.ID)
	c.Verification, c.Purged = stats.Verification, stats.Purge
	if !c.CaughtUp { // once caught up, the purger's next check resets the time
		c.ForbiddenSeconds = stats.ForbiddenFor.Seconds()
	}
	if stats.Problem != nil {
		c.Problem, c.ProblemKind = from.Hint(stats.Problem), string(upstream.Classify(stats.Problem))
	}
	now := r.opts.Clock.Now()
	if c.CaughtUp {
		c.Proven, c.AgeSeconds, c.AgeUnknown = now, 0, false
		return
	}
	age := stats.Age(now, c.Proven)
	c.Proven, _ = stats.LastProven(now, c.Proven)
	c.SetAge(age)
}

// Describe returns a collection's status without a read of the database.
func (r *Reporter) Describe(c *collection.Collection, stats collection.Stats) localapi.Collection {
	var s localapi.Collection
	if stored := c.Live().Stored; stored != nil {
		state := stored.State()
		s.Synced, s.Objects, s.Bytes, s.Proven = state.Synced, state.Count, state.Bytes, state.Proven()
	}
	r.fillCollection(&s, c, stats)
	return s
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
