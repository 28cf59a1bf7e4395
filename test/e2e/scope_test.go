package e2e

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// scopeStep is one restart with a configuration of pods, and the expected result.
type scopeStep struct {
	name      string
	resource  string
	in        func(o *unstructured.Unstructured) bool
	transform func(o map[string]any)
	relist    bool
}

// TestScopeChangedInTheConfiguration changes the configuration of a resource. The collection must
// be listed again for that reason, objects out of scope must be gone, and a transform must apply to
// every object, also to those that did not change on the server. A change that leaves the scope
// alone must cost no list.
func TestScopeChangedInTheConfiguration(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	all := onServer(t, cp, "pods")
	tiers := make(map[string]bool)
	for _, o := range all {
		tiers[tierOf(&unstructured.Unstructured{Object: o})] = true
	}
	require.Greater(t, len(tiers), 1, "the seeded pods should have several tiers")
	tier := slices.Sorted(maps.Keys(tiers))[0]
	const node = "edge-00001.shops.example.com"

	everyone := func(*unstructured.Unstructured) bool { return true }
	inTier := func(o *unstructured.Unstructured) bool { return tierOf(o) == tier }
	onNode := func(o *unstructured.Unstructured) bool {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		return name == node
	}
	keep := func(map[string]any) {}
	drop := func(o map[string]any) {
		unstructured.RemoveNestedField(o, "status")
		unstructured.RemoveNestedField(o, "metadata", "annotations")
	}

	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: pods"})
	var last localapi.Collection
	for _, step := range []scopeStep{
		{"first", "- resource: pods", everyone, keep, true},
		{"label selector", "- {resource: pods, labelSelector: example.com/tier=" + tier + "}", inTier, keep, true},
		{"the same in another spelling", "- {resource: pods.v1, labelSelector: ' example.com/tier = " + tier + "'}", inTier, keep, false},
		{"field selector", "- {resource: pods, fieldSelector: spec.nodeName=" + node + "}", onNode, keep, true},
		{"no selector", "- resource: pods", everyone, keep, true},
		{"transform", "- {resource: pods, transform: {drop: [status, metadata.annotations]}}", everyone, drop, true},
		{"the same in another order", "- {resource: pods, transform: {drop: [metadata.annotations, status]}}", everyone, drop, false},
		{"both", "- {resource: pods, labelSelector: example.com/tier=" + tier + ", transform: {drop: [status, metadata.annotations]}}", inTier, drop, true},
		{"neither", "- resource: pods", everyone, keep, true},
		{"an index", "- {resource: pods, indexes: [{name: node, field: spec.nodeName}]}", everyone, keep, false},
	} {
		t.Log(step.name)
		x.configure(settings{kubeconfig: x.kubeconfig, resources: step.resource})
		a := x.start()
		c := a.awaitScope(step, last)
		last = c
		want := content{}
		for key, o := range all {
			u := &unstructured.Unstructured{Object: o}
			if step.in(u) {
				want[key] = u.DeepCopy().Object
				step.transform(want[key])
			}
		}
		require.NotEmpty(t, want)
		requireSame(t, step.name, want, x.cached("pods"))
		require.EqualValues(t, len(want), c.Objects, step.name)
		a.stop()
		requireSame(t, step.name+", from the file", want, x.cached("pods"))
	}
}

// awaitScope waits until the agent is caught up with a configuration. last is the collection before,
// which may still be reported as caught up for a moment.
func (a *agent) awaitScope(step scopeStep, last localapi.Collection) localapi.Collection {
	a.t.Helper()
	reason, verdict, lists := "scope-changed", "list: scope-changed", 1
	if last.ID == "" {
		reason, verdict = "initial", "list: initial"
	} else if !step.relist {
		verdict, lists = "resume at RV ", 0
	}
	s := a.await("pods are caught up: "+step.name, func(s *localapi.Status) string {
		c := collections(s)["pods"]
		switch {
		case !c.CaughtUp:
			return "phase " + c.Phase
		case step.relist && (c.ListReason != reason || c.LastList.Equal(last.LastList)):
			return "the newest list is the old one"
		}
		return ""
	})
	c := collections(s)["pods"]
	require.Contains(a.t, c.Verdict, verdict, step.name)
	require.EqualValues(a.t, lists, c.Lists, "%s: lists", step.name)
	require.EqualValues(a.t, 1-lists, c.Resumes, "%s: resumes", step.name)
	if lists > 0 {
		require.Equal(a.t, lists, a.relists("pods")[reason], step.name)
	}
	require.Equal(a.t, lists, a.relists("pods").total(), step.name)
	return c
}

func tierOf(o *unstructured.Unstructured) string { return o.GetLabels()["example.com/tier"] }
