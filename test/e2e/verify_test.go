package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

const (
	verifyConfigMaps = 1200 // three pages
	verifyChurn      = 3000
	exitDrift        = 6
)

var verifyIDs = []string{"configmaps", "pods", "widgets.example.com"}

// TestVerify changes stored objects while no agent runs, which no watch can show, and has the agent
// find and repair the differences: without a list; by a list if many objects differ; and in the
// background, which only reports them. Under churn no object differs.
func TestVerify(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: verifyConfigMaps, Pods: 30, Widgets: 30}))
	s := settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), more: "verify: {interval: 0s}", resources: `
- resource: configmaps
- resource: pods
  fieldSelector: metadata.namespace!=nowhere
- resource: widgets.v1.example.com
`}
	x := newSite(t, s)
	a := x.start()
	a.requireServers(cp, verifyIDs...)
	r, same := x.verify()
	require.Zero(t, r.Code, r.Stderr)
	for _, v := range same {
		require.Zero(t, v.Drift()+v.Undecided, v.Collection)
		require.EqualValues(t, len(onServer(t, cp, v.Collection)), v.Objects)
	}

	t.Run("churn", func(t *testing.T) {
		x, a := x.in(t), a.in(t)
		done := make(chan error, 1)
		go func() {
			_, err := objects.Churn(t.Context(), cp.RESTConfig(controlplane.Admin), objects.ChurnOptions{Rate: -1, Count: verifyChurn})
			done <- err
		}()
		for runs := 0; ; runs++ {
			r, all := x.verify()
			require.Zero(t, r.Code, r.Stderr)
			for _, v := range all {
				require.Zero(t, v.Drift(), v.Collection)
			}
			select {
			case err := <-done:
				require.NoError(t, err)
				require.Positive(t, runs)
				touchAll(t, cp, verifyIDs...)
				a.requireServers(cp, verifyIDs...)
				return
			default:
			}
		}
	})
	a.stop()

	t.Run("repair", func(t *testing.T) {
		x := x.in(t)
		for _, id := range verifyIDs {
			x.tamper(id, driftOfEachKind(t, id == "configmaps"))
		}
		a := x.start()
		a.awaitCaughtUp(anywhere(verifyIDs...))
		requireDiffers(t, cp, x, verifyIDs)
		stop := nudge(t, cp)
		r, all := x.verify()
		require.Equal(t, exitDrift, r.Code, r.Stderr)
		requireOneLine(t, r.Stderr, "differs", "7 objects")
		for _, v := range all {
			require.EqualValues(t, 1, v.Missing, v.Collection)
			require.EqualValues(t, 1, v.Stale, v.Collection)
			require.Equal(t, v.Collection == "configmaps", v.Extra == 1, v.Collection)
		}
		require.Equal(t, counters{"missing": 1, "extra": 1, "stale": 1}, a.counters("snapcache_verify_drift_total", "configmaps", "kind"))
		requireDiffers(t, cp, x, verifyIDs)

		before := totals(t, cp)
		r, all = x.verify("--repair")
		require.Zero(t, r.Code, r.Stderr)
		for _, v := range all {
			require.Positive(t, v.Drift(), v.Collection)
			require.Equal(t, v.Drift(), v.Repaired, v.Collection)
			require.False(t, v.Relisted)
		}
		since := totals(t, cp).Since(before)
		stop()
		a.requireServers(cp, verifyIDs...)
		const pages = (verifyConfigMaps + 499) / 500
		require.LessOrEqual(t, since.Count("LIST", "configmaps"), pages+3*2+2, "pages of metadata, two answers for each that differs, and what nudge changes")
		require.LessOrEqual(t, since.Count("LIST", "widgets"), 1+2*2, "a page of metadata, and two answers for each that differs")
		for _, id := range verifyIDs {
			require.Zero(t, a.relists(id).total(), id)
		}
		verified := collections(a.await("status", func(*localapi.Status) string { return "" }))["configmaps"].Verification
		require.EqualValues(t, 3, verified.Repaired)
		require.Contains(t, string(x.must("status")), "verified")
		a.stop()
		require.Zero(t, x.run("check", "--db", x.db).Code)
	})

	t.Run("many", func(t *testing.T) {
		x := x.in(t)
		x.tamper("configmaps", func(v store.View, old []store.Header) (changes []store.Change) {
			for _, h := range old[:len(old)*2/3] {
				changes = append(changes, store.Change{Key: h.Key, RV: "2"})
			}
			return changes
		})
		a := x.start()
		a.awaitCaughtUp(anywhere(verifyIDs...))
		r, all := x.verify("configmaps", "--repair")
		require.Zero(t, r.Code, r.Stderr)
		require.Len(t, all, 1)
		require.True(t, all[0].Relisted)
		a.requireServers(cp, verifyIDs...)
		require.Equal(t, 1, a.relists("configmaps")["verify-failed"])
		a.stop()
	})

	t.Run("background", func(t *testing.T) {
		x := x.in(t)
		s.more = "verify: {interval: 10s}"
		x.configure(s)
		x.tamper("configmaps", driftOfEachKind(t, false))
		a := x.start()
		a.awaitCaughtUp(anywhere(verifyIDs...))
		a.await("found", func(s *localapi.Status) string {
			if v := collections(s)["configmaps"].Verification; v == nil || v.Drift() == 0 {
				return "no drift yet"
			}
			return ""
		})
		found := a.counters("snapcache_verify_drift_total", "configmaps", "kind")
		require.Positive(t, found["missing"])
		require.Positive(t, found["stale"])
		requireDiffers(t, cp, x, []string{"configmaps"})
		log := harness.ReadFile(t, x.log)
		require.Contains(t, string(log), "differs from the server: snapcache verify --repair fixes it")
		a.stop()
	})
}

// verify runs the command and returns its result.
func (x *site) verify(args ...string) (harness.Result, []localapi.Verification) {
	x.t.Helper()
	r := x.run(append([]string{"verify", "-o", "json", "--config", x.config}, args...)...)
	var all []localapi.Verification
	require.NoError(x.t, json.Unmarshal(r.Stdout, &all), "%s", r.Stderr)
	return r, all
}

// tamper changes stored objects of a collection while no agent runs. old holds the headers of the
// objects that it may change: not the newest, which are compared before each resume.
func (x *site) tamper(id string, change func(v store.View, old []store.Header) []store.Change) {
	x.t.Helper()
	db, err := bolt.Open(x.db, bolt.Options{})
	require.NoError(x.t, err)
	infos, err := db.Collections()
	require.NoError(x.t, err)
	i := slices.IndexFunc(infos, func(info store.Info) bool { return info.ID == id })
	require.GreaterOrEqual(x.t, i, 0)
	c, err := db.Open(infos[i])
	require.NoError(x.t, err)
	v, err := c.View()
	require.NoError(x.t, err)
	newest := v.State().Newest
	var old []store.Header
	for h, err := range v.Headers("", "") {
		require.NoError(x.t, err)
		if !slices.Contains(newest[:], h.Key) {
			old = append(old, h)
		}
	}
	changes := change(v, old)
	v.Close()
	require.NoError(x.t, c.Apply(store.Batch{Changes: changes}))
	require.NoError(x.t, db.Close())
}

// driftOfEachKind removes an object, replaces another by an old version, and, if extra, adds one
// that never existed.
func driftOfEachKind(t *testing.T, extra bool) func(store.View, []store.Header) []store.Change {
	return func(v store.View, old []store.Header) []store.Change {
		missing, stale := old[1], old[len(old)/2]
		o, err := v.Get(stale.Key)
		require.NoError(t, err)
		changes := []store.Change{
			{Key: missing.Key, RV: "2"},
			{Key: stale.Key, Object: withMetadata(t, o, `"`+stale.RV+`"`, `"2"`)},
		}
		if extra {
			namespace, _, _ := strings.Cut(stale.Key, "/")
			never := withMetadata(t, o, `"`+o.GetName()+`"`, `"never-was"`)
			changes = append(changes, store.Change{Key: namespace + "/never-was", Object: withMetadata(t, never, stale.UID, "00000000-0000-0000-0000-000000000000")})
		}
		return changes
	}
}

// withMetadata returns an object with a text in its JSON replaced.
func withMetadata(t *testing.T, o *object.Object, from, to string) *object.Object {
	t.Helper()
	raw := strings.ReplaceAll(string(o.Raw()), from, to)
	require.NotEqual(t, string(o.Raw()), raw)
	changed, err := object.Parse([]byte(raw))
	require.NoError(t, err)
	return changed
}

func requireDiffers(t *testing.T, cp *controlplane.ControlPlane, x *site, ids []string) {
	t.Helper()
	for _, id := range ids {
		require.NotEqual(t, onServer(t, cp, id), x.cached(id), id)
	}
}

// nudge changes a configmap all the time, so that the watch advances without waiting for a
// bookmark.
func nudge(t *testing.T, cp *controlplane.ControlPlane) (stop func()) {
	t.Helper()
	const namespace, name = "default", "nudge"
	harness.Kubectl(t, cp, "create", "configmap", "-n", namespace, name)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = cp.Kubectl(ctx, "annotate", "configmap", "-n", namespace, name, "--overwrite", "at="+time.Now().Format(time.RFC3339Nano))
		}
	}()
	return func() { cancel(); <-done }
}
