package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
)

const withSecrets = `
- resource: configmaps
- resource: secrets
- resource: services
  transform: {keepManagedFields: true}
`

// TestForbiddenCollection runs an agent whose user may not read secrets. They stay
// never synced, which is not the same as empty; the others are in step.
func TestForbiddenCollection(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: kubeconfig(t, cp, controlplane.Reader), resources: withSecrets, consent: true})
	a := x.start()
	a.requireServers(cp, "configmaps", "services")
	c := a.awaitForbidden()
	require.False(t, c.Synced)
	require.Zero(t, c.Lists)
	r := x.run("dump", "secrets", "--config", x.config)
	require.Equal(t, 3, r.code, "exit code of dump for what was never synced")
	require.Empty(t, r.stdout)
	requireOneLine(t, r.stderr, "secrets", "never synced")
	a.stop()
	require.Equal(t, 3, x.run("dump", "secrets", "--config", x.config).code, "from the file")
}

// TestForbiddenLater takes the permission away from an agent that has the objects.
// They stay.
func TestForbiddenLater(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: kubeconfig(t, cp, controlplane.Admin), resources: withSecrets, consent: true})
	a := x.start()
	a.requireServers(cp, "configmaps", "secrets", "services")
	a.stop()

	x.kubeconfig = kubeconfig(t, cp, controlplane.Reader)
	a = x.start()
	a.awaitInStep(anywhere("configmaps", "services"))
	c := a.awaitForbidden()
	require.True(t, c.Synced)
	require.False(t, c.InStep)
	require.Positive(t, c.AgeSeconds)
	requireSame(t, "secrets", onServer(t, cp, "secrets"), x.cached("secrets"))
	a.stop()

	x.kubeconfig = kubeconfig(t, cp, controlplane.Admin)
	a = x.start()
	a.requireServers(cp, "configmaps", "secrets", "services")
	require.Zero(t, a.awaitInStep(anywhere("secrets"))["secrets"].Lists, "given back, it goes on without a list")
	a.stop()
}

// awaitForbidden waits until secrets are known to be forbidden.
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
