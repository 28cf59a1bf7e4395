package informer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	for _, c := range []struct {
		name        string
		example, in runtime.Object
		scheme      *runtime.Scheme
		kind        string // as stored
	}{
		{"typed", &corev1.Pod{}, typed, core(), "Pod"},
		{"typed without a scheme", &corev1.Pod{}, typed, nil, ""},
		{"its own type, without scheme", &corev1.Pod{}, withType, nil, "Pod"},
		{"unstructured", &unstructured.Unstructured{}, tree, core(), "Widget"},
		{"metadata", meta, meta, core(), "Pod"},
		{"raw", &object.Object{}, raw, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
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

func protobufPods(t *testing.T) informer.Codec {
	codec, err := informer.NewProtobufCodec(&corev1.Pod{}, core())
	require.NoError(t, err)
	return codec
}

// An object stored as protobuf is decoded unchanged, to a new copy, and encoding does not change
// the original. Each of the two codecs reads objects that the other has stored.
func TestProtobufCodec(t *testing.T) {
	in := pod("x", "a", "n1", 7)
	in.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000, 0))
	in.Annotations = map[string]string{"a": "b"}
	before := in.DeepCopy()
	pb, js := protobufPods(t), informer.NewCodec(&corev1.Pod{}, core())
	for _, write := range []informer.Codec{pb, js} {
		o, err := write.Encode(in)
		require.NoError(t, err)
		require.Equal(t, before, in, "without apiVersion and kind, as it came")
		require.Equal(t, write.Encoding() == "protobuf", o.Protobuf())
		require.Equal(t, "Pod", o.Kind())
		require.Equal(t, "x/a", o.Key())
		for _, read := range []informer.Codec{pb, js} {
			out, err := read.Decode(o)
			require.NoError(t, err)
			require.Equal(t, in, out)
			out.(*corev1.Pod).Annotations["a"] = "changed"
			again, err := read.Decode(o)
			require.NoError(t, err)
			require.Equal(t, in, again, "private copies")
		}
	}
	o, err := pb.Encode(in)
	require.NoError(t, err)
	_, err = informer.NewCodec(&unstructured.Unstructured{}, nil).Decode(o)
	require.ErrorContains(t, err, "protobuf")
	withType := in.DeepCopy()
	withType.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	typed, err := informer.NewProtobufCodec(withType, core())
	require.NoError(t, err)
	out, err := typed.Decode(o)
	require.NoError(t, err)
	require.Equal(t, withType, out)
}

// jsonOnly is a custom resource's Go type, without a protobuf form.
type jsonOnly struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func (j *jsonOnly) DeepCopyObject() runtime.Object { c := *j; return &c }

func TestProtobufCodecErrors(t *testing.T) {
	scheme := core()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, &jsonOnly{})
	for _, tc := range []struct {
		want    string
		example runtime.Object
	}{
		{"expected a informer_test.jsonOnly with a protobuf form", &jsonOnly{}},
		{"Unstructured with a protobuf form", &unstructured.Unstructured{}},
	} {
		_, err := informer.NewProtobufCodec(tc.example, scheme)
		require.ErrorContains(t, err, tc.want)
	}
	_, err := informer.NewProtobufCodec(&corev1.PodList{}, scheme)
	require.Error(t, err, "a list is no object")
	untyped, err := informer.NewProtobufCodec(&corev1.Pod{}, nil)
	require.NoError(t, err)
	o, err := untyped.Encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	require.NoError(t, err)
	require.Empty(t, o.Kind(), "without a scheme")
	_, err = protobufPods(t).Encode(&corev1.Pod{})
	require.ErrorIs(t, err, object.ErrNoMetadata)
	_, err = protobufPods(t).Encode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	require.ErrorContains(t, err, "expected a v1.Pod")
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
