package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

const resumeChanges = 2000

var resumeIDs = []string{"configmaps", "namespaces", "pods", "widgets.example.com"}

// TestRestartMakesNoList restarts an agent while nothing changed, after 2,000 objects changed and
// while 2,000 objects are changing. The apiserver's own metrics must not count a list beyond the
// probe and the comparison of the newest objects, which are requests for one object each, and the
// received events must be the changes.
func TestRestartMakesNoList(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: resumeChanges, Pods: 50, Widgets: 50}))
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
- resource: namespaces
- resource: pods
- resource: widgets.v1.example.com
`})
	a := x.start()
	a.requireServers(cp, resumeIDs...)
	listed := a.awaitCaughtUp(anywhere(resumeIDs...))
	a.stop()
	seeded := onServer(t, cp, "configmaps")
	keys := make([]string, 0, len(seeded))
	for key := range seeded {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	keys = keys[:resumeChanges]

	t.Run("nothing changed", func(t *testing.T) {
		x := x.in(t)
		before := totals(t, cp)
		a := x.start()
		a.awaitCaughtUp(anywhere(resumeIDs...))
		requireResumed(t, a, totals(t, cp).Since(before), listed)
		for _, id := range resumeIDs {
			require.Zero(t, a.events(id).total("BOOKMARK"), "%s: events", id)
			require.Zero(t, a.changes(id).total(), "%s: changes in the store", id)
		}
		a.stop()
	})

	t.Run("changed before", func(t *testing.T) {
		x := x.in(t)
		p := newPatcher(t, cp, keys)
		p.run(t.Context(), 0, resumeChanges)
		before := totals(t, cp)
		a := x.start()
		a.awaitCaughtUp(map[string]string{"configmaps": p.newest(t), "namespaces": "", "pods": "", "widgets.example.com": ""})
		requireResumed(t, a, totals(t, cp).Since(before), listed)
		requireUpdates(t, a, resumeChanges)
		a.requireServers(cp, "configmaps")
		a.stop()
	})

	t.Run("changing", func(t *testing.T) {
		x := x.in(t)
		checkpoint := collections(x.stored())["configmaps"].ResourceVersion
		p := newPatcher(t, cp, keys)
		before := totals(t, cp)
		p.run(t.Context(), 0, resumeChanges/4)
		a := x.start()
		p.run(t.Context(), resumeChanges/4, resumeChanges)
		a.awaitCaughtUp(map[string]string{"configmaps": p.newest(t), "namespaces": "", "pods": "", "widgets.example.com": ""})
		requireResumed(t, a, totals(t, cp).Since(before), listed)
		require.Equal(t, resumeChanges, p.after(t, checkpoint))
		requireUpdates(t, a, resumeChanges)
		a.requireServers(cp, "configmaps")
		a.stop()
	})
}

// requireResumed checks that an agent resumed, by its own status and by the server's metrics.
func requireResumed(t *testing.T, a *agent, since controlplane.Totals, listed map[string]localapi.Collection) {
	t.Helper()
	now := a.awaitCaughtUp(anywhere(resumeIDs...))
	for _, id := range resumeIDs {
		c := now[id]
		requireAsked(t, since, id, c.Resource)
		require.Zero(t, c.Lists, "%s: lists", id)
		require.EqualValues(t, 1, c.Resumes, "%s: resumes", id)
		require.Contains(t, c.Verdict, "resume at RV ", id)
		require.Equal(t, "initial", c.ListReason, "%s: why it was listed", id)
		require.Equal(t, listed[id].LastList, c.LastList, "%s: when it was listed", id)
		require.Zero(t, a.relists(id).total(), "%s: relists in the metrics", id)
	}
}

// requireAsked checks that a resume cost the server nothing but the probe and the comparison of the
// newest objects. A list of one name is a LIST to the server, but a GET for a custom resource.
func requireAsked(t *testing.T, since controlplane.Totals, id, resource string) {
	t.Helper()
	lists := 1 + store.NewestKeys
	if resource == "widgets" {
		lists = 1
		require.Equal(t, store.NewestKeys, since.Count("GET", resource), "%s: GET requests", id)
	}
	require.Equal(t, lists, since.Count("LIST", resource), "%s: LIST requests, of which the probe is one", id)
}

// requireUpdates checks that n configmaps were updated, and nothing else.
func requireUpdates(t *testing.T, a *agent, n int) {
	t.Helper()
	events := a.events("configmaps")
	require.Equal(t, n, events["MODIFIED"], "events")
	require.Equal(t, n, events.total("BOOKMARK"), "events")
	require.Equal(t, counters{"added": 0, "updated": n, "deleted": 0}, a.changes("configmaps"), "changes in the store")
	for _, id := range []string{"namespaces", "pods", "widgets.example.com"} {
		require.Zero(t, a.events(id).total("BOOKMARK"), "%s: events", id)
	}
}

func totals(t *testing.T, cp *controlplane.ControlPlane) controlplane.Totals {
	t.Helper()
	now, err := cp.RequestTotals(t.Context())
	require.NoError(t, err)
	return now
}

// stored returns the status from the file while no agent runs, or from a snapshot at any time.
func (x *site) stored(from ...string) *localapi.Status {
	x.t.Helper()
	var s localapi.Status
	require.NoError(x.t, json.Unmarshal(x.must(append([]string{"inspect", "-o", "json"}, from...)...), &s))
	require.Nil(x.t, s.Agent, "the answer should be from the file")
	return &s
}

// patcher changes configmaps and records the resourceVersions of the changes. Unlike objects.Touch
// it makes no LIST request, which tests count.
type patcher struct {
	t      *testing.T
	client dynamic.NamespaceableResourceInterface
	keys   []string

	mu  sync.Mutex
	rvs []string
}

func newPatcher(t *testing.T, cp *controlplane.ControlPlane, keys []string) *patcher {
	t.Helper()
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	return &patcher{t: t, client: client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}), keys: keys}
}

// run changes keys[from:to], each once, with some requests at a time.
func (p *patcher) run(ctx context.Context, from, to int) {
	p.t.Helper()
	const workers = 8
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := from + w; i < to; i += workers {
				if err := p.patch(ctx, p.keys[i]); err != nil {
					p.t.Errorf("patch %s: %v", p.keys[i], err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.False(p.t, p.t.Failed())
}

func (p *patcher) patch(ctx context.Context, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	patch := []byte(`{"metadata":{"annotations":{"example.com/patched":"` + p.t.Name() + `"}}}`)
	o, err := p.client.Namespace(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rvs = append(p.rvs, o.GetResourceVersion())
	return nil
}

// newest returns the highest resourceVersion of the changes.
func (p *patcher) newest(t *testing.T) string {
	t.Helper()
	return slices.MaxFunc(p.rvs, compareRV(t))
}

// after returns the number of changes after a resourceVersion.
func (p *patcher) after(t *testing.T, rv string) int {
	t.Helper()
	n := 0
	for _, r := range p.rvs {
		if compareRV(t)(r, rv) > 0 {
			n++
		}
	}
	return n
}

func compareRV(t *testing.T) func(a, b string) int {
	return func(a, b string) int {
		cmp, ok := object.CompareRV(a, b)
		require.True(t, ok, "%q and %q can't be compared", a, b)
		return cmp
	}
}
