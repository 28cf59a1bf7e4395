package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestReset discards a database, which fails while an agent runs. The next start lists everything,
// as with no database.
func TestReset(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: configmaps\n- resource: nodes"})
	a := x.start()
	a.requireServers(cp, "configmaps", "nodes")
	r := x.run("reset", "--yes", "--config", x.config)
	require.Equal(t, 1, r.Code)
	requireOneLine(t, r.Stderr, "in use by another process", "stop the agent first")
	a.requireServers(cp, "configmaps")
	a.stop()

	require.Equal(t, 2, x.run("reset", "--config", x.config).Code, "there is no terminal to confirm at")
	require.FileExists(t, x.db)
	x.must("reset", "--yes")
	aside, err := filepath.Glob(x.db + ".reset-*")
	require.NoError(t, err)
	require.Len(t, aside, 1)
	a = x.start()
	a.requireServers(cp, "configmaps", "nodes")
	for id, c := range a.awaitCaughtUp(anywhere("configmaps", "nodes")) {
		require.EqualValues(t, 1, c.Lists, id)
		require.Equal(t, "initial", c.ListReason, id)
	}
	a.stop()
	require.NotEmpty(t, x.must("dump", "nodes", "--db", aside[0], "-o", "name"), "the database that was set aside is complete")
}
