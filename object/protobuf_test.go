package object_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/snapcache/snapcache/object"
)

// protobufPod returns a pod as the API server sends it in protobuf.
func protobufPod(t testing.TB) []byte {
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "till-1", UID: "u-1", ResourceVersion: "12", Generation: 3,
			Labels: map[string]string{"app": "till", "example.com/zone": "a", "empty": ""}, Annotations: map[string]string{"example.com/owner": "x"},
		},
		Spec: corev1.PodSpec{NodeName: "edge-1"},
	}
	var b bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme, scheme).Encode(p, &b))
	return b.Bytes()
}

func TestProtobuf(t *testing.T) {
	for _, c := range []struct {
		name  string
		parse func([]byte) (*object.Object, error)
	}{{"Parse", object.Parse}, {"FromValid", object.FromValid}} {
		o, err := c.parse(protobufPod(t))
		require.NoError(t, err, c.name)
		require.True(t, o.Protobuf())
		require.Equal(t, "shop/till-1", o.Key())
		require.Equal(t, "Pod", o.Kind())
		require.Equal(t, "v1", o.APIVersion())
		require.EqualValues(t, "u-1", o.GetUID())
		require.Equal(t, "12", o.GetResourceVersion())
		require.Equal(t, map[string]string{"app": "till", "example.com/zone": "a", "empty": ""}, o.Labels())
		require.Equal(t, map[string]string{"example.com/owner": "x"}, o.GetObjectMeta().GetAnnotations())
		var pod corev1.Pod
		require.NoError(t, o.Into(&pod))
		require.Equal(t, "edge-1", pod.Spec.NodeName)
		require.ErrorContains(t, o.Into(&map[string]any{}), "stored as protobuf")

		// The JSON form has the type, the metadata and the stored bytes.
		var shown struct {
			metav1.PartialObjectMetadata
			Protobuf []byte
		}
		require.NoError(t, json.Unmarshal(o.JSON(), &shown))
		require.Equal(t, "Pod", shown.Kind)
		require.Equal(t, o.Labels(), shown.Labels)
		require.Equal(t, o.Raw(), shown.Protobuf)
		_, there := o.Field("spec.nodeName")
		require.False(t, there)
		app, _ := o.Field("metadata.labels.app")
		require.Equal(t, "till", app)
		marshalled, err := json.Marshal(o)
		require.NoError(t, err)
		require.JSONEq(t, string(o.JSON()), string(marshalled))
	}
}

func TestProtobufBadInput(t *testing.T) {
	whole := protobufPod(t)
	_, err := object.Parse(whole[:len(whole)-3])
	require.ErrorIs(t, err, object.ErrInvalid)
	_, err = object.Parse(whole[:4])
	require.ErrorIs(t, err, object.ErrNoMetadata)
	_, err = object.Parse(append(bytes.Clone(whole[:4]), 0xff))
	require.ErrorIs(t, err, object.ErrInvalid)
}

// Parse refuses objects above the limits, which a store could not hold.
func TestLimits(t *testing.T) {
	named := func(n int) []byte { return []byte(`{"metadata":{"name":"` + strings.Repeat("n", n) + `"}}`) }
	_, err := object.Parse(named(object.MaxKeyBytes))
	require.NoError(t, err)
	_, err = object.Parse(named(object.MaxKeyBytes + 1))
	require.ErrorIs(t, err, object.ErrInvalid)
	_, err = object.FromValid(make([]byte, object.MaxBytes+1))
	require.ErrorIs(t, err, object.ErrInvalid)
}
