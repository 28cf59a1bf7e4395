package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// everything is a configuration with every resource that a control plane of tests has objects of.
const everything = `
- resource: pods
  indexes:
  - {name: node, field: spec.nodeName}
  - {name: app, label: app.kubernetes.io/name}
- resource: configmaps
- resource: secrets
- resource: services
  transform: {keepManagedFields: true}
- resource: endpointslices.discovery.k8s.io
- resource: nodes
- resource: deployments.apps
- resource: widgets.v1.example.com
- resource: namespaces
`

// startQuiet starts an agent that caches everything on the shared control plane, and waits until it has all objects.
func startQuiet(t *testing.T) (*controlplane.ControlPlane, *agent) {
	t.Helper()
	cp := quietControlPlane(t)
	a := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: everything, consent: true}).start()
	a.requireServers(cp, everyID...)
	return cp, a
}

// everyID holds the IDs of its collections.
var everyID = slices.Sorted(maps.Keys(kindOf))

// kindOf maps collections to the kinds of their objects.
var kindOf = map[string]string{
	"configmaps":                      "ConfigMap",
	"deployments.apps":                "Deployment",
	"endpointslices.discovery.k8s.io": "EndpointSlice",
	"namespaces":                      "Namespace",
	"nodes":                           "Node",
	"pods":                            "Pod",
	"secrets":                         "Secret",
	"services":                        "Service",
	"widgets.example.com":             "Widget",
}

// content is a collection's objects, decoded, by key.
type content map[string]map[string]any

// newest returns the highest resourceVersion of the objects.
func (c content) newest() string {
	newest := ""
	for _, o := range c {
		rv := (&unstructured.Unstructured{Object: o}).GetResourceVersion()
		if cmp, ok := object.CompareRV(rv, newest); newest == "" || ok && cmp > 0 {
			newest = rv
		}
	}
	return newest
}

// decodeList decodes a list in the format of kubectl and `dump -o json`.
func decodeList(t *testing.T, b []byte) content {
	t.Helper()
	c := content{}
	for _, o := range decodeItems(t, b) {
		c.add(t, o)
	}
	return c
}

// decodeItems returns the items of a list.
func decodeItems(t *testing.T, b []byte) []map[string]any {
	t.Helper()
	var list struct {
		Kind  string           `json:"kind"`
		Items []map[string]any `json:"items"`
	}
	require.NoError(t, utiljson.Unmarshal(b, &list), "%.200s", b)
	require.Contains(t, list.Kind, "List", "%.200s", b)
	return list.Items
}

// decodeStream decodes a sequence of objects, the format of `dump -o ndjson` and some kubectl
// commands.
func decodeStream(t *testing.T, b []byte) content {
	t.Helper()
	c := content{}
	for d := json.NewDecoder(bytes.NewReader(b)); d.More(); {
		var raw json.RawMessage
		require.NoError(t, d.Decode(&raw))
		c.add(t, decodeObject(t, raw))
	}
	return c
}

// decodeObject decodes one object. Whole numbers become int64, as in all of Kubernetes.
func decodeObject(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var o map[string]any
	require.NoError(t, utiljson.Unmarshal(b, &o), "%.200s", b)
	require.NotEmpty(t, o["kind"], "%.200s", b)
	return o
}

func (c content) add(t *testing.T, o map[string]any) {
	t.Helper()
	u := unstructured.Unstructured{Object: o}
	key := object.Key(u.GetNamespace(), u.GetName())
	require.NotContains(t, c, key, "twice in one answer")
	c[key] = o
}

// onServer returns the server's objects of a collection, read with kubectl.
func onServer(t *testing.T, cp *controlplane.ControlPlane, id string) content {
	t.Helper()
	return allOnServer(t, cp, id)[id]
}

// allOnServer returns the server's objects of collections, read with kubectl. It drops
// managedFields like the cache, except for services, of which the tests' configurations keep them.
func allOnServer(t *testing.T, cp *controlplane.ControlPlane, ids ...string) map[string]content {
	t.Helper()
	out := harness.Kubectl(t, cp, "get", strings.Join(ids, ","), "-A", "-o", "json", "--show-managed-fields")
	byKind := make(map[string]content)
	all := make(map[string]content)
	for _, id := range ids {
		all[id] = content{}
		byKind[kindOf[id]] = all[id]
	}
	for _, o := range decodeItems(t, out) {
		u := &unstructured.Unstructured{Object: o}
		if u.GetKind() != kindOf["services"] {
			u.SetManagedFields(nil)
		}
		require.Contains(t, byKind, u.GetKind())
		byKind[u.GetKind()].add(t, o)
	}
	return all
}

// cached returns the objects that the agent has, or the file if no agent runs.
func (x *site) cached(id string) content {
	x.t.Helper()
	return decodeList(x.t, x.must("dump", id, "-o", "json"))
}

// touchAll changes one object of each collection. An agent that has this change has all earlier
// ones of the collection, deletions included.
func touchAll(t *testing.T, cp *controlplane.ControlPlane, ids ...string) {
	t.Helper()
	for _, id := range ids {
		resource, _, _ := strings.Cut(id, ".")
		_, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), resource, 1)
		require.NoError(t, err)
	}
}

// requireServers waits until the agent has caught up, and compares each object of each collection
// field by field. Nothing may change meanwhile, and the newest change of each collection must not
// be a deletion.
func (a *agent) requireServers(cp *controlplane.ControlPlane, ids ...string) {
	a.t.Helper()
	want := allOnServer(a.t, cp, ids...)
	at := make(map[string]string)
	for id, objects := range want {
		at[id] = objects.newest()
	}
	found := a.awaitCaughtUp(at)
	for _, id := range ids {
		requireSame(a.t, id, want[id], a.cached(id))
		require.EqualValues(a.t, len(want[id]), found[id].Objects, "%s: objects in the status", id)
	}
}

// maxDiffs is the number of objects whose differences a failure shows.
const maxDiffs = 3

// requireSame compares two contents of one collection field by field.
func requireSame(t *testing.T, id string, want, got content) {
	t.Helper()
	if report := differences(want, got); len(report) > 0 {
		t.Fatalf("%s: %d of %d objects are not the server's:\n%s", id, len(report), len(want),
			strings.Join(report[:min(len(report), maxDiffs)], "\n"))
	}
}

// differences describes each object that differs.
func differences(want, got content) (report []string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		switch o, ok := got[key]; {
		case !ok:
			report = append(report, key+" is missing")
		case !reflect.DeepEqual(want[key], o): // far faster than cmp, which finds the place
			report = append(report, fmt.Sprintf("%s differs (-server +cache):\n%s", key, cmp.Diff(want[key], o)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			report = append(report, key+" should not be there")
		}
	}
	return report
}

// canonical returns an object as text that is equal for equal objects, without managedFields. It
// modifies o. Any goroutine may call it.
func canonical(t *testing.T, o map[string]any) string {
	t.Helper()
	unstructured.RemoveNestedField(o, "metadata", "managedFields")
	b, err := json.Marshal(o) // sorts the fields
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
