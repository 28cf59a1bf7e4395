package object_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/object"
)

// typedPod is a Go value with all the metadata that an object returns.
func typedPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "till-0", UID: "u1", ResourceVersion: "7", Labels: map[string]string{"app": "till"},
	}}
}

// podType encodes a pod as it is.
var podType = &object.GoType{APIVersion: "v1", Kind: "Pod", Encode: func(o runtime.Object) ([]byte, error) { return json.Marshal(o) }}

// requirePod checks the metadata of an object that was made of typedPod.
func requirePod(t *testing.T, o *object.Object) {
	t.Helper()
	require.Equal(t, []any{"v1", "Pod", "shop/till-0", "shop", "till-0", "u1", "7", map[string]string{"app": "till"}},
		[]any{o.APIVersion(), o.Kind(), o.Key(), o.GetNamespace(), o.GetName(), string(o.GetUID()), o.GetResourceVersion(), o.Labels()})
	require.Equal(t, "Pod", o.GetObjectKind().GroupVersionKind().Kind)
	require.Equal(t, "7", o.GetObjectMeta().GetResourceVersion())
}

func TestFromGo(t *testing.T) {
	v := typedPod()
	o, err := object.FromGo(v, podType)
	require.NoError(t, err)
	requirePod(t, o)
	require.Same(t, v, o.Go())
	require.False(t, o.Encoded())
	require.Equal(t, v.Size(), o.Size(), "as protobuf, without encoding it")

	other := typedPod()
	with := o.WithGo(other)
	requirePod(t, with)
	require.Same(t, other, with.Go())
	require.True(t, with.Encoded())
	require.JSONEq(t, string(o.Raw()), string(with.Raw()))

	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
	}{
		{"without a name", func(p *corev1.Pod) { p.Name = "" }},
		{"a long name", func(p *corev1.Pod) { p.Name = strings.Repeat("x", object.MaxKeyBytes) }},
	} {
		v := typedPod()
		tc.change(v)
		_, err := object.FromGo(v, podType)
		require.Error(t, err, tc.name)
	}
}

// TestFromGoConcurrent encodes an object in several goroutines: each gets the same bytes.
func TestFromGoConcurrent(t *testing.T) {
	o, err := object.FromGo(typedPod(), podType)
	require.NoError(t, err)
	var raws [8][]byte
	var group sync.WaitGroup
	for i := range raws {
		group.Go(func() { raws[i] = o.Raw() })
	}
	group.Wait()
	for _, raw := range raws {
		require.Same(t, unsafe.SliceData(raws[0]), unsafe.SliceData(raw))
	}
}

// TestFromGoUnencodable checks that an object that can't be encoded still has its metadata as JSON.
func TestFromGoUnencodable(t *testing.T) {
	typ := &object.GoType{APIVersion: "v1", Kind: "Pod", Encode: func(runtime.Object) ([]byte, error) { return nil, errors.New("broken") }}
	o, err := object.FromGo(typedPod(), typ)
	require.NoError(t, err)
	parsed, err := object.Parse(o.Raw())
	require.NoError(t, err)
	requirePod(t, parsed)
}

// TestZeroObject checks that the zero Object, which is used as an example of the type, is empty.
func TestZeroObject(t *testing.T) {
	o := &object.Object{}
	require.Empty(t, o.Key()+o.Kind()+o.APIVersion()+string(o.GetUID())+o.GetResourceVersion())
	require.Empty(t, o.Labels())
	require.Empty(t, o.Raw())
	require.Nil(t, o.Go())
}
