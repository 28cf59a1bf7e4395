package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// diskOf mounts a file system for the directory of the site's database, and returns a function that
// makes it read-only, or writable again.
func diskOf(t *testing.T, x *site) (readOnly func(bool)) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("root has to mount a file system")
	}
	dir := filepath.Dir(x.db)
	require.NoError(t, os.Mkdir(dir, 0o700))
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256m")
	if errors.Is(err, syscall.EPERM) {
		t.Skip("no file system can be mounted here")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return func(on bool) {
		flags := uintptr(syscall.MS_REMOUNT)
		if on {
			flags |= syscall.MS_RDONLY
		}
		require.NoError(t, syscall.Mount("", dir, "", flags, ""))
	}
}

// awaitAlarm waits until the agent reports that changes can't be stored or, if on is false, no longer. It returns
// the status.
func (a *agent) awaitAlarm(on bool) *localapi.Status {
	a.t.Helper()
	return a.await("an alarm, or its end", func(s *localapi.Status) string {
		if (s.Store.Problem != "") != on {
			return "problem: " + s.Store.Problem
		}
		return ""
	})
}

// TestReadOnlyDisk starts agents on a read-only file system. They serve the file as it is, without and
// with a server, follow changes in memory, and store them without a list once the disk takes writes.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 40, Pods: 20, Namespaces: 2}))
	network := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	x := newSite(t, settings{kubeconfig: network.Kubeconfig, resources: twoResources})
	readOnly := diskOf(t, x)
	for _, last := range []string{"closed", "killed"} {
		a := x.start()
		a.requireServers(cp, twoIDs...)
		before := map[string]content{}
		if last == "killed" {
			// The file is not closed, and its newest changes are in the journal alone, or lost: those
			// of the last flush interval.
			touchAll(t, cp, twoIDs...)
			a.requireServers(cp, twoIDs...)
			a.kill()
			for _, id := range twoIDs {
				before[id] = x.cached(id)
			}
		} else {
			a.stop()
			for _, id := range twoIDs {
				before[id] = onServer(t, cp, id)
			}
		}
		readOnly(true)
		network.Down()

		a = x.start()
		a.awaitAlarm(true)
		for _, id := range twoIDs {
			requireSame(t, id, before[id], x.cached(id))
		}
		s := a.await("offline", func(s *localapi.Status) string {
			if s.Agent.Problem == "" {
				return "no problem"
			}
			return ""
		})
		require.Contains(t, s.Store.Problem, "read-only file system")
		require.Contains(t, s.Alarms()[0].String(), "changes can't be stored")
		require.Contains(t, string(a.metricsText()), "snapcache_store_failing 1")
		x.awaitLog("the database can't be written")

		network.Up()
		a.requireServers(cp, twoIDs...)
		touchAll(t, cp, twoIDs...)
		a.requireServers(cp, twoIDs...)
		a.awaitAlarm(true)

		readOnly(false)
		a.awaitAlarm(false)
		require.Contains(t, string(a.metricsText()), "snapcache_store_failing 0")
		for id, c := range a.awaitCaughtUp(anywhere(twoIDs...)) {
			require.Zero(t, c.Lists, id)
		}
		touchAll(t, cp, twoIDs...)
		a.requireServers(cp, twoIDs...)
		a.stop()
		for _, id := range twoIDs {
			requireSame(t, id, onServer(t, cp, id), x.cached(id))
		}
		require.Zero(t, x.run("check", "--config", x.config).Code)
	}
}

// TestReadOnlyDisk_NothingStored starts an agent that has no file yet on a read-only file system, with all
// that the Kubernetes API keeps beside it. It serves from memory and, once the disk takes writes, goes on with a
// file that has all of it, although the server is away by then.
func TestReadOnlyDisk_NothingStored(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 40, Pods: 20, Namespaces: 2}))
	network := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	s := settings{
		kubeconfig: network.Kubeconfig, resources: twoResources,
		more: "kubernetesAPI: {address: '" + harness.FreeAddress(t) + "', openAPI: true, access: {enabled: true}}",
	}
	x := newSite(t, s)
	readOnly := diskOf(t, x)
	readOnly(true)
	a := x.start()
	x.awaitLog("the disk takes no writes, and has no database to read")
	a.requireServers(cp, twoIDs...)
	touchAll(t, cp, twoIDs...)
	a.requireServers(cp, twoIDs...)
	inMemory := a.awaitAlarm(true)
	require.Contains(t, string(a.metricsText()), "snapcache_store_failing 1")
	require.Equal(t, "memory", inMemory.Store.Type)
	require.Contains(t, inMemory.Store.Problem, "read-only file system")
	before := map[string]content{}
	for _, id := range twoIDs {
		before[id] = x.cached(id)
	}
	network.Down()
	readOnly(false)
	inFile := a.awaitAlarm(false)
	require.Contains(t, string(a.metricsText()), "snapcache_store_failing 0")
	require.Equal(t, "bolt", inFile.Store.Type)
	require.Equal(t, inMemory.Agent.PID, inFile.Agent.PID)
	require.Equal(t, inMemory.Agent.Started, inFile.Agent.Started)
	for _, id := range twoIDs {
		requireSame(t, id, before[id], x.cached(id))
	}
	network.Up()
	touchAll(t, cp, twoIDs...)
	a.requireServers(cp, twoIDs...)
	for id, c := range a.awaitCaughtUp(anywhere(twoIDs...)) {
		require.Zero(t, c.Lists, id)
	}
	a.stop()
	for _, id := range twoIDs {
		requireSame(t, id, onServer(t, cp, id), x.cached(id))
	}
	require.Zero(t, x.run("check", "--config", x.config).Code)

	// The file alone is there.
	require.NoError(t, os.RemoveAll(filepath.Join(filepath.Dir(x.db), "kubernetes-api")))
	readOnly(true)
	a = x.start()
	a.requireServers(cp, twoIDs...)
	a.awaitAlarm(true)
	require.True(t, a.Running())
	for _, line := range []string{"a credential of the Kubernetes API can't be written", "a file is kept in memory until the next start"} {
		x.awaitLog(line)
	}
	readOnly(false)
	a.awaitAlarm(false)
	a.stop()
}
