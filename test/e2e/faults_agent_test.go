package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	"github.com/snapcache/snapcache/test/e2e/faultfs"
)

// onDisk puts the database of a site on a disk of its own.
func (x *site) onDisk(d *faultfs.Disk, s settings) {
	x.t.Helper()
	x.db = filepath.Join(d.Dir, "cache.db")
	x.configure(s)
}

// TestFaultDiskFullAgent starts an agent on a full disk, frees some space, fills it again while
// objects change, and frees it: the agent lists into memory, goes on with a file, continues in memory
// with an alarm, and catches up.
func TestFaultDiskFullAgent(t *testing.T) {
	t.Parallel()
	disk := faultfs.New(t, 1)
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 60, Namespaces: 4}))
	s := settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
`}
	x := newSite(t, s)
	x.onDisk(disk, s)

	disk.Set(faultfs.Faults{Space: 4096})
	a := x.start()
	x.awaitLog("the disk takes no writes, and has no database to read")
	a.requireServers(cp, "configmaps") // from memory
	disk.Set(faultfs.Faults{})
	a.awaitAlarm(false)
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
	for _, c := range a.awaitCaughtUp(anywhere("configmaps")) {
		require.Zero(t, c.Lists, "the file began with the content of the memory")
	}
	want := onServer(t, cp, "configmaps")
	a.kill()
	requireSame(t, "configmaps", want, x.cached("configmaps"))
}

// TestFaultDiskFullForLong keeps the disk full for longer than the agent's memory lasts: the agent
// stops reading the watch, and when there is space again it continues there, without a list.
func TestFaultDiskFullForLong(t *testing.T) {
	t.Parallel()
	const (
		count = 110 // of which an apiserver keeps 100, of any age
		size  = 900 << 10
		// The data that waits for the disk (16 MiB, or 64 MiB as received if compression makes
		// records a quarter of that), the queue, and the data in flight.
		most = 64<<20 + 4<<20 + 8<<20
	)
	disk := faultfs.New(t, 1)
	cp := harness.ControlPlane(t, controlplane.Options{})
	network := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	s := settings{kubeconfig: network.Kubeconfig, resources: "- resource: configmaps"}
	x := newSite(t, s)
	x.onDisk(disk, s)
	a := x.start()
	a.requireServers(cp, "configmaps")
	before := network.Received()

	disk.Set(faultfs.Faults{Space: disk.Counts().Used, NoSpace: faultfs.Always})
	client := harness.Clientset(t, cp.RESTConfig(controlplane.Admin))
	noise := make([]byte, size*3/4)
	for i := range count {
		for at := range noise {
			noise[at] = byte(rand.Uint32())
		}
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%03d", i)},
			Data:       map[string]string{"noise": base64.StdEncoding.EncodeToString(noise)},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	x.awaitLog("there is no room for more")
	require.Contains(t, string(x.must("status")), "changes can't be stored")
	require.Less(t, len(x.cached("configmaps")), most/size)
	require.Less(t, network.Received()-before, int64(most), "the agent read on although it could not store")

	disk.Set(faultfs.Faults{})
	a.requireServers(cp, "configmaps")
	a.await("the end of the alarm", func(s *localapi.Status) string { return s.Store.Problem })
	for _, c := range a.awaitCaughtUp(anywhere("configmaps")) {
		require.Equal(t, 1, int(c.Lists), "one list only")
	}
	a.stop()
	requireSame(t, "configmaps", onServer(t, cp, "configmaps"), x.cached("configmaps"))
}

// awaitLog waits until the agent's log contains a text.
func (x *site) awaitLog(text string) {
	x.t.Helper()
	poll(x.t, "the log contains "+text, nil, func(context.Context) (bool, error) {
		return strings.Contains(string(harness.ReadFile(x.t, x.log)), text), nil
	})
}

// TestFaultPowerCutAgent cuts the power of an agent's disk while objects change. After each cut the
// file equals the server's state at the checkpoint, and in the end the agent has caught up. Every
// few cuts it gets another encryption key, or none, and the power is cut while its file is
// rewritten. Every 200 cuts it begins with a new file: all of a file, with its history, is read after
// each cut.
func TestFaultPowerCutAgent(t *testing.T) {
	t.Parallel()
	random := random(t)
	server := newChurned(t)
	s := server.settings(t)
	var disk *faultfs.Disk
	var x *site
	finish := func() *agent {
		a := x.start()
		a.awaitCaughtUp(anywhere(recorded...))
		require.NotContains(t, string(harness.ReadFile(t, x.log)), "was set aside")
		require.Contains(t, string(harness.ReadFile(t, x.log)), "after a power cut")
		return a
	}

	boot := bootID(t)
	synced, encrypted, checkpoints := 0, 0, map[string]bool{}
	cuts := times(10, 2000)
	for i := range cuts {
		if i%200 == 0 {
			if i > 0 {
				finish().stop()
			}
			disk, x = faultfs.New(t, random.Uint64()), newSite(t, s)
			x.onDisk(disk, s)
			x.writeKeys()
		}
		if i%3 == 0 {
			s.more = anyKeys(random)
			x.configure(s)
		}
		a := x.start()
		a.await("far enough", func(s *localapi.Status) string { return caughtUp(s, i%4) })
		delay := time.Duration(random.Int64N(int64(killMax)))
		sleep(t, delay)
		disk.Cut(faultfs.Choice(random.IntN(4)))
		a.kill()
		disk.Restart()
		disk.Replace(boot, anotherBoot(boot))
		if i%100 == 99 {
			t.Logf("%d of %d power cuts", i+1, cuts)
		}

		what := "cut " + delay.String()
		r := x.run("inspect", "--config", x.config)
		if r.Code != 0 {
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
				server.truth.requireState(what+", "+id, id, c.ResourceVersion, 0, dumped[c.Kind])
			}
		}
	}
	t.Logf("%d power cuts, %d of them of an encrypted file; %d collections were compared with the server's history, at %d checkpoints", cuts, encrypted, synced, len(checkpoints))
	require.Greater(t, len(checkpoints), cuts/4, "too few of the cuts came after something was stored")

	a := finish()
	server.settle(t, a)
	a.stop()
}
