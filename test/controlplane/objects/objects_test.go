package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestObjectsAreDeterministic checks that objects depend on nothing but their arguments, and
// on all of them.
func TestObjectsAreDeterministic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(namespace string, i int, seed int64) any
	}{
		{"pod", func(n string, i int, s int64) any { return Pod(n, i, s) }},
		{"configmap", func(n string, i int, s int64) any { return ConfigMap(n, i, s) }},
		{"secret", func(n string, i int, s int64) any { return Secret(n, i, s) }},
		{"service", func(n string, i int, s int64) any { return Service(n, i, s) }},
		{"endpointslice", func(n string, i int, s int64) any { return EndpointSlice(n, i, s) }},
		{"deployment", func(n string, i int, s int64) any { return Deployment(n, i, s) }},
		{"widget", func(n string, i int, s int64) any { return Widget(n, i, s) }},
	} {
		one := encode(t, c.make("shop-0001", 7, 1))
		if again := encode(t, c.make("shop-0001", 7, 1)); again != one {
			t.Errorf("%s: the same call gave\n%s\nand\n%s", c.name, one, again)
		}
		for _, other := range []any{c.make("shop-0002", 7, 1), c.make("shop-0001", 8, 1), c.make("shop-0001", 7, 2)} {
			if encode(t, other) == one {
				t.Errorf("%s: another call gave the same object", c.name)
			}
		}
	}
	if encode(t, Node(1, 1)) == encode(t, Node(2, 1)) {
		t.Error("node: another call gave the same object")
	}
}

// TestPods checks the pods' size, on which the interpretation of measurements depends, and that no
// value that has to be unique occurs twice.
func TestPods(t *testing.T) {
	t.Parallel()
	const count = 2000
	seen := make(map[string]bool)
	var whole, bare int
	applications := make(map[string]bool)
	for i := range count {
		pod := Pod(Namespace(i%100), i, 1)
		for _, unique := range []string{key(pod.Namespace, pod.Name), string(pod.UID), pod.Status.ContainerStatuses[0].ContainerID} {
			if seen[unique] {
				t.Fatalf("pod %d: %s again", i, unique)
			}
			seen[unique] = true
		}
		if pod.Namespace == Namespace(0) {
			applications[pod.Labels["app.kubernetes.io/name"]] = true
		}
		whole += len(encode(t, pod))
		if !strings.Contains(string(pod.ManagedFields[1].FieldsV1.Raw), pod.Status.PodIP) {
			t.Fatalf("pod %d: kubelet owns another address: %s", i, pod.ManagedFields[1].FieldsV1.Raw)
		}
		pod.ManagedFields = nil
		bare += len(encode(t, pod))
	}
	if whole /= count; whole < 9500 || whole > 12000 {
		t.Errorf("a pod has %d bytes, want about 11,000", whole)
	}
	if bare /= count; bare*100 < whole*45 || bare*100 > whole*60 {
		t.Errorf("a pod of %d bytes has %d without managedFields, want about half", whole, bare)
	}
	if len(applications) < 8 {
		t.Errorf("one namespace has only %d applications", len(applications))
	}
}

// TestFieldSet compares a field set with the one that an apiserver wrote for the same fields.
func TestFieldSet(t *testing.T) {
	t.Parallel()
	var value map[string]any
	err := json.Unmarshal([]byte(`{
		"metadata": {"labels": {"a": "1"}, "ownerReferences": [{"uid": "u", "name": "n"}]},
		"spec": {"containers": [{"name": "c", "args": ["x"], "ports": [{"containerPort": 80, "protocol": "TCP"}]}], "tolerations": [{"key": "k"}]}
	}`), &value)
	if err != nil {
		t.Fatal(err)
	}
	set := fieldSet("", value)
	delete(set, ".")
	want := `{"f:metadata":{"f:labels":{".":{},"f:a":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"u\"}":{}}},` +
		`"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:args":{},"f:name":{},` +
		`"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}}}},"f:tolerations":{}}}`
	if got := encode(t, set); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestUnknownResource(t *testing.T) {
	t.Parallel()
	if _, err := Touch(t.Context(), nil, "gadgets", 1); !errors.Is(err, ErrUnknownResource) || !strings.Contains(fmt.Sprint(err), "widgets") {
		t.Errorf("touch of an unknown resource: %v", err)
	}
	if _, err := Churn(t.Context(), nil, ChurnOptions{Kinds: []string{"nodes"}}); !errors.Is(err, ErrUnknownResource) {
		t.Errorf("churn of what it cannot create: %v", err)
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func BenchmarkPod(b *testing.B) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Pod("shop-0000", i, 1)
	}
}
