package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	"github.com/snapcache/snapcache/test/e2e/faultfs"
)

// onDisk puts the database of a site on a disk of its own.
func (x *site) onDisk(d *faultfs.Disk, s settings) {
	x.t.Helper()
	x.db = filepath.Join(d.Dir, "cache.db")
	x.configure(s)
}

// TestFaultDiskFullAgent starts an agent on a disk without room, gives it some, takes it
// again while objects change, and gives it back: the agent waits, lists, goes on in memory
// with an alarm, and catches up.
func TestFaultDiskFullAgent(t *testing.T) {
	t.Parallel()
	disk := faultfs.New(t, 1)
	cp := newControlPlane(t)
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 60, Namespaces: 4}))
	s := settings{kubeconfig: kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
`}
	x := newSite(t, s)
	x.onDisk(disk, s)

	disk.Set(faultfs.Faults{Space: 4096})
	a := x.start()
	x.awaitLog("there is no room on the disk for the database")
	require.True(t, a.running())
	disk.Set(faultfs.Faults{})
	a.awaitInStep(anywhere("configmaps"))
	a.requireServers(cp, "configmaps")
	require.Zero(t, a.counters("snapcache_store_failing", "", "").total())

	disk.Set(faultfs.Faults{Space: disk.Counts().Used, NoSpace: faultfs.Always})
	touchAll(t, cp, "configmaps")
	a.await("the alarm", func(s *localapi.Status) string {
		if !strings.Contains(s.Store.Problem, "no space left on device") {
			return "problem: " + s.Store.Problem
		}
		return ""
	})
	x.awaitLog("the database can't be written")
	require.Equal(t, 1, a.counters("snapcache_store_failing", "", "").total())
	require.Contains(t, string(x.must("status")), "changes can't be stored")
	touchAll(t, cp, "configmaps")
	a.requireServers(cp, "configmaps") // from memory

	disk.Set(faultfs.Faults{})
	a.await("the end of the alarm", func(s *localapi.Status) string { return s.Store.Problem })
	x.awaitLog("the database can be written again")
	require.Zero(t, a.counters("snapcache_store_failing", "", "").total())
	a.requireServers(cp, "configmaps")
	for _, c := range a.awaitInStep(anywhere("configmaps")) {
		require.Equal(t, 1, int(c.Lists), "there was no other list")
	}
	want := onServer(t, cp, "configmaps")
	a.kill()
	requireSame(t, "configmaps", want, x.cached("configmaps"))
}

// awaitLog waits until the agent's log has a text.
func (x *site) awaitLog(text string) {
	x.t.Helper()
	poll(x.t, "the log says "+text, nil, func(context.Context) (bool, error) {
		return strings.Contains(string(fileContent(x.t, x.log)), text), nil
	})
}

// TestFaultPowerCutAgent cuts the power of an agent's disk while objects change. After each
// cut the file is exactly the state that the server had at the checkpoint, and in the end
// the agent has come back to the server's. Every few cuts it gets another encryption key, or
// none, and the power is cut while its file is rewritten.
func TestFaultPowerCutAgent(t *testing.T) {
	t.Parallel()
	disk := faultfs.New(t, random(t).Uint64())
	random := random(t)
	server := newChurned(t)
	s := server.settings(t)
	x := newSite(t, s)
	x.onDisk(disk, s)
	x.writeKeys()

	boot := bootID(t)
	synced, encrypted, checkpoints := 0, 0, map[string]bool{}
	cuts := times(10, 2000)
	for i := range cuts {
		if i%3 == 0 {
			s.more = anyKeys(random)
			x.configure(s)
		}
		a := x.start()
		a.await("far enough", func(s *localapi.Status) string { return inStep(s, i%4) })
		delay := time.Duration(random.Int64N(int64(killMax)))
		sleep(t, delay)
		disk.Cut(faultfs.Choice(random.IntN(4)))
		a.kill()
		disk.Restart()
		disk.Replace(boot, anotherBoot(boot))

		what := "cut " + delay.String()
		r := x.run("inspect", "--config", x.config)
		if r.code != 0 {
			continue // there is no database yet
		}
		dumped := x.dumpByKind(what)
		stored := x.stored()
		if stored.Store.EncryptionKey != "" {
			encrypted++
		}
		for id, c := range collections(stored) {
			if c.Synced {
				synced++
				checkpoints[id+c.ResourceVersion] = true
				requireState(t, what+", "+id, server.histories[id].at(t, c.ResourceVersion), dumped[c.Kind])
			}
		}
	}
	t.Logf("%d power cuts, %d of them of an encrypted file; %d collections were compared with the server's history, at %d checkpoints", cuts, encrypted, synced, len(checkpoints))
	require.Greater(t, len(checkpoints), cuts/4, "too few of the cuts came after something was stored")
	require.NotContains(t, string(fileContent(t, x.log)), "was set aside")
	require.Contains(t, string(fileContent(t, x.log)), "after a power cut")

	a := x.start()
	server.settle(t, a)
	a.stop()
}
