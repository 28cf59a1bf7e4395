package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// killPhase is what an agent, or another process that writes the file, is doing when it is killed.
type killPhase struct {
	name string
	// begin starts the phase and returns a function that kills the process and waits for its exit.
	// No other process may have the file open then.
	begin func(k *killing) (kill func())
	// within is the approximate duration of the phase.
	within time.Duration
}

var killPhases = []killPhase{
	{"first sync", func(k *killing) func() {
		require.NoError(k.t, os.RemoveAll(filepath.Dir(k.x.db)))
		return k.x.start().kill
	}, 1200 * time.Millisecond},
	{"steady state", func(k *killing) func() {
		a := k.x.start()
		a.awaitCaughtUp(anywhere(killIDs...))
		return a.kill
	}, 600 * time.Millisecond},
	{"relist of everything", func(k *killing) func() {
		// Another transform, unknown to the comparison.
		k.managedFields = !k.managedFields
		k.configure()
		return k.x.start().kill
	}, 1200 * time.Millisecond},
	{"compaction", func(k *killing) func() { return k.command("compact") }, 250 * time.Millisecond},
	{"snapshot", func(k *killing) func() {
		a := k.x.start()
		a.awaitCaughtUp(anywhere(killIDs...))
		end := k.command("snapshot", "create")
		return func() { a.kill(); end() }
	}, 150 * time.Millisecond},
	{"index build", func(k *killing) func() {
		k.index++
		k.configure()
		return k.x.start().kill
	}, 500 * time.Millisecond},
	{"rewriting under another key", func(k *killing) func() {
		for was := k.keys; k.keys == was; {
			k.keys = anyKeys(k.random)
		}
		k.configure()
		return k.x.start().kill
	}, 400 * time.Millisecond},
}

var killIDs = []string{"configmaps", "widgets.example.com"}

// killing is the environment of the killed processes.
type killing struct {
	t      *testing.T
	x      *site
	random *rand.Rand

	keys          string
	managedFields bool
	index         int // number of the index
}

func (k *killing) configure() {
	k.x.configure(settings{kubeconfig: k.x.kubeconfig, more: k.keys, resources: fmt.Sprintf(`
- resource: configmaps
  transform: {keepManagedFields: %t}
  indexes: [{name: tier-%d, label: example.com/tier}, {name: wave-%d, label: example.com/wave}]
- resource: widgets.example.com
`, k.managedFields, k.index, k.index)})
}

// command starts another command and returns a function that kills it.
func (k *killing) command(args ...string) func() {
	cmd := k.x.command(context.Background(), append(args, "--config", k.x.config)...)
	require.NoError(k.t, cmd.Start())
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			require.ErrorIs(k.t, err, os.ErrProcessDone)
		}
		if err := cmd.Wait(); err != nil {
			require.True(k.t, errors.As(err, new(*exec.ExitError)), "%v", err)
		}
	}
}

// TestFaultKill kills the process that writes the file at random moments of all its phases, while
// objects change all the time. Each time the file must be sound, and each collection in it must
// equal etcd's state at the checkpoint: keys, versions and contents. A synced collection stays
// synced, unless the file was taken away, and an existing snapshot is complete. Whether the file is
// encrypted is random.
func TestFaultKill(t *testing.T) {
	t.Parallel()
	random := random(t)
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: times(600, 3000), Widgets: 60, Namespaces: 4}))
	k := &killing{t: t, x: newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin)}), random: random, keys: anyKeys(random)}
	k.x.writeKeys()
	k.configure()
	truth := recordTruth(t, cp)
	stopChurn := beginChurn(t, cp.RESTConfig(controlplane.Admin), churnStored)

	a := k.x.start()
	a.awaitCaughtUp(anywhere(killIDs...))
	a.stop()
	synced, unsynced, encrypted, states := 0, 0, 0, make(map[string]bool)
	kills := times(28, 504)
	for i := range kills {
		phase := killPhases[i%len(killPhases)]
		kill := phase.begin(k)
		delay := time.Duration(random.Int64N(int64(phase.within)))
		sleep(t, delay)
		kill()

		if i%100 == 99 {
			t.Logf("%d of %d kills", i+1, kills)
		}
		what := fmt.Sprintf("kill %d, %s after the start of the %s", i, delay.Round(time.Millisecond), phase.name)
		if _, err := os.Stat(k.x.db); phase.name == "first sync" && errors.Is(err, os.ErrNotExist) {
			unsynced += len(killIDs)
			continue
		}
		r := k.x.run("check", "--config", k.x.config)
		require.Zero(t, r.Code, "%s: %s%s", what, r.Stdout, r.Stderr)
		dumped := k.x.dumpByKind(what)
		stored := k.x.stored()
		if stored.Store.EncryptionKey != "" {
			encrypted++
		}
		for id, c := range collections(stored) {
			if !c.Synced {
				require.Equal(t, "first sync", phase.name, "%s: %s was synced before", what, id)
				unsynced++
				continue
			}
			truth.requireState(what, id, c.ResourceVersion, 0, dumped[c.Kind])
			synced++
			states[id+" "+c.ResourceVersion] = true
		}
		if phase.name == "snapshot" {
			if r := k.x.run("snapshot", "verify", "--config", k.x.config); r.Code != 0 {
				require.Contains(t, r.Stderr, "no snapshot", "%s: %s", what, r.Stdout)
			}
		}
	}
	a = k.x.start()
	a.awaitCaughtUp(anywhere(killIDs...))
	stopChurn()
	touchAll(t, cp, killIDs...)
	at := onServer(t, cp, "configmaps").newest()
	a.awaitCaughtUp(map[string]string{"configmaps": at, "widgets.example.com": ""})
	a.stop()
	truth.await(truth.revision())
	dumped := k.x.dumpByKind("in the end")
	for id, c := range collections(k.x.stored()) {
		truth.requireState("in the end", id, c.ResourceVersion, 0, dumped[c.Kind])
	}
	t.Logf("%d kills, %d of them left an encrypted file: %d collections synced, at %d checkpoints, %d not yet; %d changes", kills, encrypted, synced, len(states), unsynced, truth.length())
	require.Greater(t, len(states), kills/4, "too few of the kills came after something was stored")
}
