package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestEveryObjectEqualsTheServers compares every field of every object with the output of kubectl:
// after the first sync, under churn, and after restarts of every kind. Each part continues from the
// state that the one before it left.
func TestEveryObjectEqualsTheServers(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, smallSeed))
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: everything, consent: true})

	a := x.start()
	a.requireServers(cp, everyID...)
	for id, c := range a.awaitCaughtUp(anywhere(everyID...)) {
		require.Equal(t, "list: initial", c.Verdict, id)
		require.EqualValues(t, 1, c.Lists, id)
	}

	churn(t, cp, 400)
	touchAll(t, cp, everyID...)
	a.requireServers(cp, everyID...)

	for _, restart := range []struct {
		name      string
		end       func()
		meanwhile func()
	}{
		{"nothing changed", func() { a.stop() }, func() {}},
		{"churn while it was away", func() { a.stop() }, func() { churn(t, cp, 300) }},
		{"killed under churn", func() { duringChurn(t, cp, func() { a.kill() }) }, func() {}},
		{"stopped under churn", func() { duringChurn(t, cp, func() { a.stop() }) }, func() {}},
		{"started under churn", func() { a.stop() }, func() {
			duringChurn(t, cp, func() { a = x.start(); a.awaitCaughtUp(anywhere(everyID...)) })
		}},
	} {
		t.Log(restart.name)
		restart.end()
		restart.meanwhile()
		if !a.Running() {
			a = x.start()
		}
		a.awaitCaughtUp(anywhere(everyID...))
		if restart.name != "nothing changed" {
			touchAll(t, cp, everyID...)
		}
		a.requireServers(cp, everyID...)
		for id, c := range a.awaitCaughtUp(anywhere(everyID...)) {
			require.Contains(t, c.Verdict, "resume at RV ", "%s: %s", restart.name, id)
			require.Zero(t, c.Lists, "%s: %s", restart.name, id)
			require.EqualValues(t, 1, c.Resumes, "%s: %s", restart.name, id)
		}
	}

	a.stop()
	for id, want := range allOnServer(t, cp, everyID...) {
		requireSame(t, id+" from the file", want, x.cached(id))
	}
}

// churn makes about n changes to pods, configmaps and widgets, as fast as the server accepts them.
func churn(t *testing.T, cp *controlplane.ControlPlane, n int) {
	t.Helper()
	counts, err := objects.Churn(t.Context(), cp.RESTConfig(controlplane.Admin), objects.ChurnOptions{Rate: -1, Count: n})
	require.NoError(t, err)
	require.Greater(t, counts.Total(), n/2)
}

// duringChurn does something while pods, configmaps and widgets change all the time.
func duringChurn(t *testing.T, cp *controlplane.ControlPlane, do func()) {
	t.Helper()
	before := onServer(t, cp, "pods").newest()
	stop := beginChurn(t, cp.RESTConfig(controlplane.Admin), objects.ChurnOptions{Rate: 100})
	poll(t, "pods are churned", nil, func(context.Context) (bool, error) {
		return onServer(t, cp, "pods").newest() != before, nil
	})
	do()
	stop()
}
