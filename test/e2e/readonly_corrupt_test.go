package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestReadOnlyDisk_FileCorrupt starts an agent on a read-only file system whose database is corrupt. It
// can't set the file aside: it serves from memory, reports both, and sets the file aside once the disk takes
// writes.
func TestReadOnlyDisk_FileCorrupt(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources})
	readOnly := diskOf(t, x)
	a := x.start()
	a.requireServers(cp, twoIDs...)
	a.stop()
	b := harness.ReadFile(t, x.db)
	clear(b[:8192])
	// A process that is started just now by another test would have the file open for a moment, too: then the file
	// system can't become read-only.
	syscall.ForkLock.RLock()
	err := os.WriteFile(x.db, b, 0o600)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)

	readOnly(true)
	a = x.start()
	x.awaitLog("the disk takes no writes, and has no database to read")
	x.awaitLog("not a snapcache database")
	x.awaitLog("read-only file system")
	a.requireServers(cp, twoIDs...)
	a.awaitAlarm(true)
	readOnly(false)
	a.awaitAlarm(false)
	a.requireServers(cp, twoIDs...)
	for id, c := range a.awaitCaughtUp(anywhere(twoIDs...)) {
		require.Zero(t, c.Lists, id)
	}
	a.stop()
	kept, err := filepath.Glob(x.db + ".foreign-*")
	require.NoError(t, err)
	require.Len(t, kept, 1)
}
