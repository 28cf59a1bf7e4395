package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestDurableAfterDisconnect cuts the server off, and then kills the agent with SIGKILL. All received
// events must be in the file, however long the commit interval: a lost event might not come again
// for hours.
func TestDurableAfterDisconnect(t *testing.T) {
	t.Parallel()
	const id = "configmaps"
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 20}))
	network := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	x := newSite(t, settings{kubeconfig: network.Kubeconfig, resources: "- resource: " + id, commitInterval: "5m"})

	changed := func(a *agent) string {
		touchAll(t, cp, id)
		rv := onServer(t, cp, id).newest()
		a.awaitCaughtUp(map[string]string{id: rv})
		return rv
	}
	stored := func() string { return collections(x.stored())[id].ResourceVersion }

	a := x.start()
	a.awaitCaughtUp(anywhere(id))
	rv := changed(a)
	a.kill()
	require.Negative(t, compareRV(t)(stored(), rv), "the event was flushed before the disconnect, so the test proves nothing")

	a = x.start()
	a.awaitCaughtUp(map[string]string{id: rv})
	rv = changed(a)
	commits := func() int { return a.counters("snapcache_store_commits_total", "", "").total() }
	before := commits()
	network.Down()
	poll(t, "the event is committed", nil, func(context.Context) (bool, error) { return commits() > before, nil })
	a.kill()
	require.GreaterOrEqual(t, compareRV(t)(stored(), rv), 0, "the file is at %s, the watch had sent up to %s", stored(), rv)
	requireSame(t, id, onServer(t, cp, id), x.cached(id))
}
