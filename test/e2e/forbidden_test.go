package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

const withSecrets = `
- resource: configmaps
- resource: secrets
- resource: services
  transform: {keepManagedFields: true}
`

// TestForbiddenCollection runs an agent whose user may not read secrets. They stay never synced,
// which differs from empty; the others are caught up, and equal the server's.
func TestForbiddenCollection(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Reader), resources: withSecrets, consent: true})
	a := x.start()
	a.requireServers(cp, "configmaps", "services")
	c := a.awaitForbidden()
	require.False(t, c.Synced)
	require.Zero(t, c.Lists)
	r := x.run("dump", "secrets", "--config", x.config)
	require.Equal(t, 3, r.Code, "exit code of dump for what was never synced")
	require.Empty(t, r.Stdout)
	requireOneLine(t, r.Stderr, "secrets", "never synced")

	r, all := x.verify()
	require.Equal(t, 3, r.Code, "exit code of verify if a collection was never synced")
	requireOneLine(t, r.Stderr, "secrets: never synced", "grant get, list and watch on secrets")
	require.Len(t, all, 3)
	for _, v := range all {
		require.Equal(t, v.Collection == "secrets", v.Unsynced, v.Collection)
		if v.Unsynced {
			require.Contains(t, v.Problem, "grant get, list and watch on secrets")
			continue
		}
		require.Empty(t, v.Problem, v.Collection)
		require.EqualValues(t, len(onServer(t, cp, v.Collection)), v.Objects, v.Collection)
	}
	require.Contains(t, string(x.run("verify", "--config", x.config).Stdout), "never synced")
	require.Contains(t, string(x.run("status", "--config", x.config).Stdout), "2 collections verified")
	r = x.run("verify", "secrets", "configmaps", "--config", x.config)
	require.Equal(t, 3, r.Code, "exit code of verify for what was never synced")
	require.Empty(t, r.Stdout)
	require.Zero(t, x.run("verify", "services", "configmaps", "--config", x.config).Code)
	a.stop()
	require.Equal(t, 3, x.run("dump", "secrets", "--config", x.config).Code, "from the file")
}

// TestForbiddenLater revokes the permission of an agent that has the objects. They stay, for as
// long as the hint announces. The log warns once, however many retries there are.
func TestForbiddenLater(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: withSecrets, consent: true})
	a := x.start()
	a.requireServers(cp, "configmaps", "secrets", "services")
	a.stop()

	x.kubeconfig = harness.Kubeconfig(t, cp, controlplane.Reader)
	a = x.start()
	a.awaitCaughtUp(anywhere("configmaps", "services"))
	c := a.awaitForbidden()
	require.True(t, c.Synced)
	require.False(t, c.CaughtUp)
	require.Positive(t, c.AgeSeconds)
	const left = "its stored objects are deleted in 1d0h if that stays so"
	require.Contains(t, c.Problem, left)
	require.Contains(t, string(x.must("status")), left)
	a.await("a retry", func(s *localapi.Status) string {
		if failures := a.counters("snapcache_upstream_errors_total", "secrets", "kind")["forbidden"]; failures < 3 {
			return "there were less than 3 failures"
		}
		return ""
	})
	require.Equal(t, 1, strings.Count(string(harness.ReadFile(x.t, x.log)), `level=WARN msg="the server rejects the requests" collection=secrets`), string(harness.ReadFile(x.t, x.log)))
	requireSame(t, "secrets", onServer(t, cp, "secrets"), x.cached("secrets"))
	a.stop()

	x.kubeconfig = harness.Kubeconfig(t, cp, controlplane.Admin)
	a = x.start()
	a.requireServers(cp, "configmaps", "secrets", "services")
	require.NotContains(t, string(x.must("status")), "are deleted")
	require.Zero(t, a.awaitCaughtUp(anywhere("secrets"))["secrets"].Lists, "given back, it goes on without a list")
	a.stop()
}

// awaitForbidden waits until the agent reports secrets as forbidden.
func (a *agent) awaitForbidden() localapi.Collection {
	a.t.Helper()
	s := a.await("secrets are forbidden", func(s *localapi.Status) string {
		if c := collections(s)["secrets"]; c.Problem == "" {
			return "no problem, in phase " + c.Phase
		}
		return ""
	})
	c := collections(s)["secrets"]
	require.Contains(a.t, c.Problem, "forbidden")
	require.Contains(a.t, c.Problem, "secrets")
	return c
}
