package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestSnapshot makes a snapshot of a running agent, and starts from it when the database is
// corrupt, on a second node, on a third one after the checkpoint has expired, and on one of another
// cluster. Each ends with the objects of its server, and only the last two list.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, expiredSeed))
	const resources = `
- resource: configmaps
- resource: services
  transform: {keepManagedFields: true}
- resource: widgets.v1.example.com
`
	ids := expiredIDs
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: resources})
	a := x.start()
	a.requireServers(cp, ids...)
	made := bytes.TrimSpace(x.must("snapshot", "create"))
	file, _, ok := bytes.Cut(made, []byte(": "))
	require.True(t, ok, "%s", made)
	snap := string(file)
	require.Equal(t, filepath.Join(filepath.Dir(x.db), "snapshots"), filepath.Dir(snap))
	require.Contains(t, string(x.must("snapshot", "verify")), "ok: "+snap)
	require.Equal(t, 1, a.counters("snapcache_snapshots_total", "", "result")["success"])
	before := map[string]content{}
	for _, id := range ids {
		before[id] = x.cached(id)
	}
	changeConfigMaps(t, cp)
	a.requireServers(cp, ids...)
	for _, id := range ids {
		requireSame(t, id+" in the snapshot", before[id], decodeList(t, x.must("dump", id, "-o", "json", "--from", filepath.Base(snap))))
	}
	a.stop()

	// requireResumed checks that an agent that started from the snapshot is caught up and made no
	// list.
	requireResumed := func(t *testing.T, x *site, verdict string) {
		t.Helper()
		before := totals(t, cp)
		a := x.start()
		a.awaitCaughtUp(anywhere(ids...))
		since := totals(t, cp).Since(before)
		a.requireServers(cp, ids...)
		s, err := a.client.Status(t.Context())
		require.NoError(t, err)
		require.Contains(t, s.Store.Verdict, verdict)
		for id, c := range collections(s) {
			requireAsked(t, since, id, c.Resource)
			require.Zero(t, c.Lists, id)
			require.EqualValues(t, 1, c.Resumes, id)
			require.Contains(t, c.Verdict, "resume at RV ", id)
			require.Zero(t, a.relists(id).total(), id)
		}
		require.Equal(t, counters{"added": expiredAdded, "updated": expiredUpdated, "deleted": expiredDeleted}, a.changes("configmaps"))
		a.stop()
	}
	fromIt := "from snapshot " + filepath.Base(snap) + ", of "
	t.Run("corrupt", func(t *testing.T) {
		x := x.in(t)
		require.NoError(t, os.Truncate(x.db, 64<<10))
		requireResumed(t, x, fromIt)
		aside, err := filepath.Glob(x.db + ".corrupt-*")
		require.NoError(t, err)
		require.Len(t, aside, 1)
	})
	seeded := func(t *testing.T, cp *controlplane.ControlPlane) *site {
		return newSite(t, settings{
			kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin),
			resources:  resources + "restore:\n  seed: " + snap,
		})
	}
	t.Run("second node", func(t *testing.T) { requireResumed(t, seeded(t, cp), "created; "+fromIt) })

	requireListed := func(t *testing.T, x *site, cp *controlplane.ControlPlane, reason string) {
		t.Helper()
		a := x.start()
		for id, c := range a.awaitListed(reason, ids...) {
			require.EqualValues(t, 1, c.Lists, id)
		}
		a.requireServers(cp, ids...)
		a.stop()
	}
	t.Run("another cluster", func(t *testing.T) {
		other := harness.ControlPlane(t, controlplane.Options{})
		require.NoError(t, objects.Seed(t.Context(), other, objects.SeedOptions{ConfigMaps: 20, Widgets: 10, Services: 5}))
		requireListed(t, seeded(t, other), other, "cluster-changed")
	})
	t.Run("forgotten", func(t *testing.T) {
		forget(t, cp)
		requireListed(t, seeded(t, cp), cp, "expired")
	})
}
