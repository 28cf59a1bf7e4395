package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestMemoryStore runs an agent without a database: it catches up like the others, leaves nothing
// on disk, has no history, and is empty after a restart.
func TestMemoryStore(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources})
	for range 2 {
		a := x.launch(append(x.runArgs(), "--store", "memory")...)
		a.requireServers(cp, twoIDs...)
		for id, c := range a.awaitCaughtUp(anywhere(twoIDs...)) {
			require.Equal(t, "list: initial", c.Verdict, id)
			require.EqualValues(t, 1, c.Lists, id)
		}
		changes := x.run("changes", "configmaps", "--since", "1h", "--config", x.config)
		require.Equal(t, 2, changes.Code, changes.Stderr)
		require.Contains(t, changes.Stderr, "the store keeps no history of changes: it is in memory, see snapcache status and store.type in the agent's configuration")
		a.stop()
	}
	require.NoFileExists(t, x.db)
}
