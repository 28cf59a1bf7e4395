package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestCorruptRecord corrupts a byte of a record in the file, for a collection of all objects, for
// one with a selector, and for an object that was deleted meanwhile. The agent serves the others,
// reports the record as corrupt, and gets the object again without a list.
func TestCorruptRecord(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 50, Pods: 20, Widgets: 20}))
	ids := []string{"configmaps", "pods", "widgets.example.com"}
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
- resource: pods
  fieldSelector: metadata.namespace!=nowhere
- resource: widgets.v1.example.com
`})
	a := x.start()
	a.requireServers(cp, ids...)
	a.stop()

	corrupt, count := map[string]string{}, map[string]int{}
	for _, id := range ids {
		stored := x.cached(id)
		count[id] = len(stored)
		corrupt[id] = oldest(stored)
		o := unstructured.Unstructured{Object: stored[corrupt[id]]}
		x.damageRecord(string(o.GetUID()))
	}
	gone := unstructured.Unstructured{Object: onServer(t, cp, "widgets.example.com")[corrupt["widgets.example.com"]]}
	harness.Kubectl(t, cp, "delete", "widgets.example.com", "-n", gone.GetNamespace(), gone.GetName())
	_, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "widgets", 1)
	require.NoError(t, err)

	before := totals(t, cp)
	a = x.start()
	a.awaitCaughtUp(anywhere(ids...))
	for _, id := range []string{"configmaps", "pods"} {
		r := x.run("dump", id, "-o", "name", "--config", x.config)
		require.Equal(t, codeCorrupt, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "record "+corrupt[id]+" is corrupt")
		require.Len(t, lines([]byte(r.Stdout)), count[id]-1, "%s: the others are served", id)
	}
	a.await("corrupt records are fetched again", func(s *localapi.Status) string {
		for id, c := range collections(s) {
			if c.CorruptRecords > 0 {
				return fmt.Sprintf("%s has %d corrupt records", id, c.CorruptRecords)
			}
		}
		return ""
	})
	since := totals(t, cp).Since(before)
	a.requireServers(cp, ids...)
	require.Equal(t, 1, a.counters("snapcache_corrupt_records_total", "configmaps", "collection").total())
	require.Equal(t, 1, a.counters("snapcache_corrupt_records_total", "pods", "collection").total())
	require.Equal(t, 1+store.NewestKeys, since.Count("LIST", "configmaps"), "the probe and the newest objects")
	require.Equal(t, 1, since.Count("GET", "configmaps"))
	require.Equal(t, 2+store.NewestKeys, since.Count("LIST", "pods"), "the probe, the newest objects, and the object, which is listed because of the selector")
	require.Equal(t, 1, since.Count("LIST", "widgets"), "the probe")
	for id, c := range a.awaitCaughtUp(anywhere(ids...)) {
		require.Zero(t, c.Lists, id)
	}
	a.stop()
	for _, id := range ids {
		requireSame(t, id, onServer(t, cp, id), x.cached(id))
	}
	require.Zero(t, x.run("check", "--db", x.db).Code, "nothing is left of it")
}

// oldest returns the key of the object with the oldest change. A resume reads the newest objects,
// and so would repair them before the test can look.
func oldest(stored content) string {
	return slices.MinFunc(slices.Sorted(maps.Keys(stored)), func(a, b string) int {
		cmp, _ := object.CompareRV(rvOf(stored[a]), rvOf(stored[b]))
		return cmp
	})
}

func rvOf(o map[string]any) string {
	return (&unstructured.Unstructured{Object: o}).GetResourceVersion()
}

// damageRecord corrupts a byte in the payload of the record with this UID, also in old pages that
// still have it.
func (x *site) damageRecord(uid string) {
	x.t.Helper()
	b := harness.ReadFile(x.t, x.db)
	header := append([]byte{byte(len(uid))}, uid...) // in a JSON text a quote comes before it
	found := false
	for i := 0; ; i += len(header) {
		n := bytes.Index(b[i:], header)
		if n < 0 {
			break
		}
		i += n
		b[i+len(header)+20] ^= 1 // behind two resourceVersions
		found = true
	}
	require.True(x.t, found, "UID %s is in no record", uid)
	require.NoError(x.t, os.WriteFile(x.db, b, 0o600))
}
