package informer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
)

func parse(t *testing.T, raw string) *object.Object {
	o, err := object.Parse([]byte(raw))
	require.NoError(t, err)
	return o
}

func TestCodecs(t *testing.T) {
	typed := pod("x", "a", "n1", 7)
	typed.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000, 0))
	withType := pod("x", "a", "n1", 7)
	withType.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	tree := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "w", "namespace": "x"}, "spec": map[string]any{"n": int64(3), "f": 1.5, "list": []any{"a"}},
	}}
	meta := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "x"},
	}
	raw := parse(t, `{"metadata":{"name":"r","namespace":"x"}}`)
	for name, c := range map[string]struct {
		example, in runtime.Object
		scheme      *runtime.Scheme
		kind        string // as stored
	}{
		"typed":                        {&corev1.Pod{}, typed, core(), "Pod"},
		"typed without a scheme":       {&corev1.Pod{}, typed, nil, ""},
		"its own type, without scheme": {&corev1.Pod{}, withType, nil, "Pod"},
		"unstructured":                 {&unstructured.Unstructured{}, tree, core(), "Widget"},
		"metadata":                     {meta, meta, core(), "Pod"},
		"raw":                          {&object.Object{}, raw, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			codec := informer.NewCodec(c.example, c.scheme)
			o, err := codec.Encode(c.in)
			require.NoError(t, err)
			require.Equal(t, c.kind, o.Kind())
			out, err := codec.Decode(o)
			require.NoError(t, err)
			require.Equal(t, c.in, out)
			if _, raw := c.in.(*object.Object); !raw {
				again, err := codec.Decode(o)
				require.NoError(t, err)
				require.NotSame(t, out, again, "private copies")
			}
		})
	}
}

func TestCodecErrors(t *testing.T) {
	codec := informer.NewCodec(&corev1.Pod{}, core())
	_, err := codec.Encode(&corev1.Pod{})
	require.ErrorIs(t, err, object.ErrNoMetadata)
	_, err = codec.Decode(parse(t, `{"metadata":{"name":"a"},"spec":1}`))
	require.ErrorContains(t, err, "decode a as a v1.Pod")
	// Names are case sensitive, as API clients read them.
	out, err := codec.Decode(parse(t, `{"metadata":{"name":"a"},"Spec":{"nodeName":"n1"}}`))
	require.NoError(t, err)
	require.Empty(t, out.(*corev1.Pod).Spec.NodeName)
}
