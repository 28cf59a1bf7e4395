package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// readableWithin is the longest time from exec to an agent's first answer on the command line.
const readableWithin = time.Second

var offlineIDs = []string{"configmaps", "pods", "widgets.example.com"}

// TestStartWithoutServer starts an agent that can't reach the server: the cache must be
// readable at once, with its age and the cause, and the agent must resume without a list when the
// server is back.
func TestStartWithoutServer(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{Pods: 60, ConfigMaps: 60, Widgets: 60}))
	network := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	x := newSite(t, settings{kubeconfig: network.Kubeconfig, resources: `
- resource: pods
- resource: configmaps
- resource: widgets.v1.example.com
`})
	a := x.start()
	a.requireServers(cp, offlineIDs...)
	listed := a.awaitCaughtUp(anywhere(offlineIDs...))
	a.stop()

	for _, away := range []struct {
		name    string
		cut     func()
		problem string
	}{
		{"refused", network.Down, "can't reach the server: connection refused"},
		{"no answer", network.Hang, ""}, // timeouts take longer than this test
	} {
		t.Run(away.name, func(t *testing.T) {
			x := x.in(t)
			before := make(map[string]content)
			for _, id := range offlineIDs {
				before[id] = onServer(t, cp, id)
			}
			away.cut()
			churn(t, cp, 60)
			touchAll(t, cp, offlineIDs...)

			started := time.Now()
			a := x.start()
			s := a.firstStatus()
			took := time.Since(started)
			dumped := time.Now()
			for _, id := range offlineIDs {
				requireSame(t, id+" while the server is away", before[id], x.cached(id))
			}
			t.Logf("status after %s, and three dumps in %s", took.Round(time.Millisecond), time.Since(dumped).Round(time.Millisecond))
			require.Less(t, took, readableWithin)
			for id, c := range collections(s) {
				require.True(t, c.Synced, id)
				require.False(t, c.CaughtUp, id)
				require.Positive(t, c.AgeSeconds, "%s: age", id)
				require.Less(t, c.AgeSeconds, time.Since(listed[id].LastList).Seconds()+1, "%s: age", id)
				require.False(t, c.Proven.IsZero(), id)
				require.Contains(t, c.Verdict, "resume at RV "+c.ResourceVersion, id)
			}
			require.False(t, s.Agent.Connected)
			require.Contains(t, string(x.must("status")), "old")
			if away.problem != "" {
				s = a.await("the problem is reported", func(s *localapi.Status) string {
					if s.Agent.Problem == "" {
						return "no problem"
					}
					return ""
				})
				require.Contains(t, s.Agent.Problem, away.problem)
				require.Contains(t, string(x.must("status")), away.problem)
			}

			network.Up()
			a.requireServers(cp, offlineIDs...)
			for id, c := range a.awaitCaughtUp(anywhere(offlineIDs...)) {
				require.Zero(t, c.Lists, "%s: lists", id)
				require.EqualValues(t, 1, c.Resumes, "%s: resumes", id)
				require.Equal(t, listed[id].LastList, c.LastList, "%s: it was listed again", id)
				require.Empty(t, c.Problem, id)
			}
			a.stop()
		})
	}
}

// firstStatus runs `snapcache status` until the agent answers.
func (a *agent) firstStatus() *localapi.Status {
	a.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		r := a.run("status", "--config", a.config, "-o", "json")
		if r.Code == 0 {
			var s localapi.Status
			require.NoError(a.t, json.Unmarshal(r.Stdout, &s))
			if s.Agent != nil {
				return &s
			}
		}
		if time.Now().After(deadline) || !a.Running() {
			a.t.Fatalf("no answer from the agent: %s", r.Stderr)
		}
	}
}
