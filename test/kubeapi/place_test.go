package kubeapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes       = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	widgets     = schema.GroupVersionResource{Group: "lab.example.com", Version: "v1", Resource: "widgets"}
)

// place is where a test has its objects: a namespace, which is also the prefix of the names of its
// cluster-scoped objects.
type place struct {
	*plane
	t         *testing.T
	namespace string
	round     int
}

// newPlace creates the namespace.
func newPlace(t *testing.T, on *plane, namespace string) *place {
	t.Helper()
	p := &place{plane: on, t: t, namespace: namespace}
	p.apply(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace))
	return p
}

// apply creates objects with their status, or changes them. The namespace may be absent.
func (p *place) apply(manifests string) {
	p.t.Helper()
	for _, manifest := range strings.Split(manifests, "\n---\n") {
		o := &unstructured.Unstructured{}
		require.NoError(p.t, yaml.Unmarshal([]byte(manifest), &o.Object))
		mapping, err := p.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		require.NoError(p.t, err)
		objects := p.objects(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			objects = p.client.Resource(mapping.Resource)
		} else {
			o.SetNamespace(p.namespace)
		}
		status := o.Object["status"]
		patch, err := json.Marshal(o)
		require.NoError(p.t, err)
		made, err := objects.Patch(p.t.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			made, err = objects.Create(p.t.Context(), o, metav1.CreateOptions{})
		}
		require.NoError(p.t, err, manifest)
		if status != nil {
			made.Object["status"] = status
			_, err = objects.UpdateStatus(p.t.Context(), made, metav1.UpdateOptions{})
			require.NoError(p.t, err, manifest)
		}
	}
}

func (p *place) objects(of schema.GroupVersionResource) dynamic.ResourceInterface {
	if of == nodes {
		return p.client.Resource(of)
	}
	return p.client.Resource(of).Namespace(p.namespace)
}

// remove deletes an object at once.
func (p *place) remove(of schema.GroupVersionResource, name string) {
	p.t.Helper()
	now := int64(0)
	require.NoError(p.t, p.objects(of).Delete(p.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// manifests are objects of several resources, with a name to be filled in.
const manifests = `{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, labels: {round: "ROUND"}}, data: {key: "ROUND"}}
---
{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {round: "ROUND"}}, spec: {nodeName: edge-ROUND, containers: [{name: c, image: i}]},
 status: {phase: Running, podIP: 10.2.0.1, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: NAME, labels: {round: "ROUND"}},
 spec: {replicas: ROUND, selector: {matchLabels: {app: NAME}}, template: {metadata: {labels: {app: NAME}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: v1, kind: Node, metadata: {name: NAMESPACE-NAME, labels: {round: "ROUND"}}}
---
{apiVersion: lab.example.com/v1, kind: Widget, metadata: {name: NAME, labels: {round: "ROUND"}}, spec: {size: ROUND, color: red, free: {big: 9007199254740993}}}`

// change creates objects of each resource, changes some of those that the last change made, deletes
// others, and creates one again with a name that was in use.
func (p *place) change() {
	p.t.Helper()
	make := func(name string, round int) {
		p.t.Helper()
		p.apply(strings.NewReplacer("NAMESPACE", p.namespace, "NAME", name, "ROUND", fmt.Sprint(round)).Replace(manifests))
	}
	for _, of := range []schema.GroupVersionResource{configMaps, pods, deployments, nodes, widgets} {
		if p.round == 0 {
			break
		}
		name := func(kind string) string {
			name := fmt.Sprintf("%s-%d", kind, p.round)
			if of == nodes {
				return p.namespace + "-" + name
			}
			return name
		}
		p.remove(of, name("passing"))
		p.remove(of, name("returning"))
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"changed":"%d"}}}`, p.round)
		_, err := p.objects(of).Patch(p.t.Context(), name("staying"), types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(p.t, err)
	}
	if p.round > 0 {
		make(fmt.Sprintf("returning-%d", p.round), 7)
	}
	p.round++
	for _, kind := range []string{"staying", "passing", "returning"} {
		make(fmt.Sprintf("%s-%d", kind, p.round), p.round)
	}
}

// mine reports whether the object is one of the test's.
func (p *place) mine(o *unstructured.Unstructured) bool {
	return o.GetNamespace() == p.namespace || o.GetNamespace() == "" && strings.HasPrefix(o.GetName(), p.namespace+"-")
}

// form is how a client has an object: in which type.
type form func(*unstructured.Unstructured) (runtime.Object, error)

func asItIs(o *unstructured.Unstructured) (runtime.Object, error) { return o, nil }

func typed(o *unstructured.Unstructured) (runtime.Object, error) {
	into, err := scheme.Scheme.New(o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return into, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
}

func onlyMetadata(o *unstructured.Unstructured) (runtime.Object, error) {
	into := &metav1.PartialObjectMetadata{}
	return into, runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": o.Object["metadata"]}, into)
}

// byKey returns the content of objects by their keys, without the kinds, which typed objects do not
// have.
func byKey(objects []runtime.Object) (map[string]map[string]any, error) {
	all := map[string]map[string]any{}
	for _, o := range objects {
		encoded, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		var content map[string]any
		if err := json.Unmarshal(encoded, &content); err != nil {
			return nil, err
		}
		delete(content, "kind")
		delete(content, "apiVersion")
		m, err := meta.Accessor(o)
		if err != nil {
			return nil, err
		}
		key := m.GetNamespace() + "/" + m.GetName()
		if all[key] != nil {
			return nil, fmt.Errorf("%s is there twice", key)
		}
		all[key] = content
	}
	return all, nil
}

// objectDiff returns the differences between two sets of objects; empty if there is none.
func objectDiff(want, got []runtime.Object) (string, error) {
	wanted, err := byKey(want)
	if err != nil {
		return "", err
	}
	found, err := byKey(got)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if found[key] == nil {
			fmt.Fprintf(&b, "%s is missing\n", key)
		} else if d := cmp.Diff(wanted[key], found[key]); d != "" {
			fmt.Fprintf(&b, "%s differs:\n%s\n", key, d)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if wanted[key] == nil {
			fmt.Fprintf(&b, "%s does not exist\n", key)
		}
	}
	return b.String(), nil
}
