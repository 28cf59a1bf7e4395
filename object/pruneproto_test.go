package object_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
)

// fullPod is a pod with something at each path of the tests.
func fullPod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "till-1", Labels: map[string]string{"app": "till"},
			Annotations: map[string]string{"example.com/owner": "x", "other": "y"}, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0)),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}, {Manager: "n"}},
		},
		Spec:   corev1.PodSpec{NodeName: "edge-1", NodeSelector: map[string]string{"a": "b"}, Containers: []corev1.Container{{Name: "c"}}, SecurityContext: &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "s"}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: "Ready"}}},
	}
}

// encoded returns a pod's protobuf, and the same with a field of a newer server in it.
func encoded(t require.TestingT, p *corev1.Pod) (raw, newer []byte) {
	message, err := p.Marshal()
	require.NoError(t, err)
	wrap := func(message []byte) []byte {
		raw, body := object.NewEnvelope("v1", "Pod").New(len(message))
		copy(body, message)
		return raw
	}
	return wrap(message), wrap(protowire.AppendString(protowire.AppendTag(append([]byte(nil), message...), 9999, protowire.BytesType), "newer"))
}

// What is dropped from protobuf is what is dropped from JSON, and the rest stays byte for byte.
func TestPruneProtobuf(t *testing.T) {
	all := []string{
		object.ManagedFields, "metadata.labels", `metadata.annotations.example\.com/owner`, "metadata.annotations.absent", "metadata.creationTimestamp",
		"spec", "spec.nodeName", "spec.nodeSelector.a", "spec.securityContext.sysctls", "status.conditions", "status.phase",
	}
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID).Draw(t, "paths")
		p, err := object.NewPrune(paths...).For(&corev1.Pod{})
		require.NoError(t, err)
		raw, newer := encoded(t, fullPod())
		asJSON, err := json.Marshal(fullPod())
		require.NoError(t, err)
		asJSON, err = p.Append(nil, asJSON)
		require.NoError(t, err)
		var want corev1.Pod
		require.NoError(t, json.Unmarshal(asJSON, &want))
		want.TypeMeta = metav1.TypeMeta{} // not part of the message
		for _, raw := range [][]byte{raw, newer} {
			pruned, err := p.Append([]byte("before"), raw)
			require.NoError(t, err)
			require.Equal(t, "before", string(pruned[:6]))
			o, err := object.FromValid(pruned[6:])
			require.NoError(t, err)
			var got corev1.Pod
			require.NoError(t, o.Into(&got))
			require.True(t, want.String() == got.String(), "without %s: %s", paths, &got)
			if len(paths) == 0 {
				require.Equal(t, raw, pruned[6:])
			}
		}
		pruned, err := p.Append(nil, newer)
		require.NoError(t, err)
		require.Contains(t, string(pruned), "newer", "a field that this version does not know")
	})
}

func TestPruneProtobufErrors(t *testing.T) {
	for _, c := range []struct{ name, path, err string }{
		{"no field", "spec.nodeNames", `drop spec.nodeNames from a v1.Pod: there is no field "nodeNames"`},
		{"the type", "kind", "there is no field"},
		{"in a list", "spec.containers.name", `"name" is in a slice`},
		{"in a string", "spec.nodeName.x", `"x" is in a string`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := object.NewPrune(c.path).For(&corev1.Pod{})
			require.ErrorContains(t, err, c.err)
		})
	}
	raw, _ := encoded(t, fullPod())
	_, err := object.NewPrune("spec").Append(nil, raw)
	require.ErrorContains(t, err, "of an unknown type")
	p, err := object.NewPrune(object.ManagedFields, `metadata.annotations.other`).For(&corev1.Pod{})
	require.NoError(t, err)
	for i := range len(raw) - object.ProtobufPrefixLen {
		_, err := p.Append(nil, raw[:object.ProtobufPrefixLen+i])
		if err != nil {
			require.ErrorIs(t, err, object.ErrInvalid, "cut off after %d", i)
		}
	}
}
