package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestReadOnlyDisk_Directories starts an agent whose database is on a good disk, and whose socket and snapshots
// are not: it follows the server and names either path, and the socket is served once its disk takes writes.
func TestReadOnlyDisk_Directories(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{})
	other := *x
	other.db = filepath.Join(x.dir, "other", "none")
	readOnly := diskOf(t, &other)
	x.socket = filepath.Join(x.dir, "other", "agent.sock")
	x.configure(settings{
		kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources,
		more: "snapshots: {dir: " + filepath.Join(x.dir, "other", "snapshots") + "}",
	})
	readOnly(true)
	a := x.start()
	x.awaitLog("the socket can't be made; trying again")
	x.awaitLog(x.socket)
	x.awaitLog("msg=listed collection=pods")
	require.True(t, a.Running())
	readOnly(false)
	a.requireServers(cp, twoIDs...)

	readOnly(true)
	r := x.run("snapshot", "create", "--socket", x.socket)
	require.NotZero(t, r.Code)
	require.Contains(t, string(r.Stderr), filepath.Join(x.dir, "other", "snapshots"))
	require.Contains(t, string(r.Stderr), "read-only file system")
	a.requireServers(cp, twoIDs...)
	readOnly(false)
	x.must("snapshot", "create", "--socket", x.socket)
	a.stop()
}
