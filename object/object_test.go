package object_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/sjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
)

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"till-1","namespace":"shop","uid":"u-1","resourceVersion":"12",` +
	`"labels":{"app":"till","example.com/zone":"a"},"annotations":{"example.com/owner":"x"},"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]},` +
	`"spec":{"nodeName":"edge-1","containers":[{"name":"c"}]}}`

func TestParse(t *testing.T) {
	o, err := object.Parse([]byte(pod))
	require.NoError(t, err)
	require.Equal(t, "shop/till-1", o.Key())
	require.Equal(t, "Pod", o.Kind())
	require.Equal(t, "v1", o.APIVersion())
	require.EqualValues(t, "u-1", o.GetUID())
	require.Equal(t, "12", o.GetResourceVersion())
	require.Equal(t, map[string]string{"app": "till", "example.com/zone": "a"}, o.Labels())
	node, ok := o.Field("spec.nodeName")
	require.True(t, ok)
	require.Equal(t, "edge-1", node)
	_, ok = o.Field("spec.absent")
	require.False(t, ok)
	owner, ok := o.Field(`metadata.annotations.example\.com/owner`)
	require.True(t, ok)
	require.Equal(t, "x", owner)
}

// client-go's key function and ours return the same key.
func TestClientGoKeyFunc(t *testing.T) {
	o, err := object.Parse([]byte(pod))
	require.NoError(t, err)
	key, err := cache.MetaNamespaceKeyFunc(o)
	require.NoError(t, err)
	require.Equal(t, o.Key(), key)
	o.GetObjectMeta().SetName("changed")
	require.Equal(t, "till-1", o.GetName(), "GetObjectMeta returns a private copy")
}

func TestParseBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		raw  string
		want error
	}{
		{"empty", "", object.ErrInvalid},
		{"cut", pod[:60], object.ErrInvalid},
		{"array", "[]", object.ErrInvalid},
		{"no metadata", `{"kind":"Pod"}`, object.ErrNoMetadata},
		{"metadata is text", `{"metadata":"x"}`, object.ErrNoMetadata},
		{"no name", `{"metadata":{"namespace":"a"}}`, object.ErrNoMetadata},
	} {
		_, err := object.Parse([]byte(tc.raw))
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestWithType(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"metadata":{"name":"a"}}`, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`},
		{`{}`, `{"kind":"Pod","apiVersion":"v1"}`},
		{`{"apiVersion":"x/v1","kind":"W","metadata":{}}`, `{"apiVersion":"x/v1","kind":"W","metadata":{}}`},
		{`{"kind":"W","metadata":{}}`, `{"apiVersion":"v1","kind":"W","metadata":{}}`},
	} {
		require.JSONEq(t, tc.want, string(object.WithType([]byte(tc.in), "v1", "Pod")))
	}
}

func TestPrune(t *testing.T) {
	p := object.NewPrune(object.ManagedFields, `metadata.annotations.example\.com/owner`, "absent.path")
	in := []byte(pod)
	out, err := p.Append(nil, in)
	require.NoError(t, err)
	require.Equal(t, pod, string(in), "the input is not changed")
	require.NotContains(t, string(out), "managedFields")
	require.NotContains(t, string(out), "example.com/owner")
	require.True(t, json.Valid(out))
	require.Equal(t, p.ID(), object.NewPrune("absent.path", `metadata.annotations.example\.com/owner`, object.ManagedFields).ID(),
		"the ID does not depend on the order of the paths")
	require.NotEqual(t, p.ID(), object.NewPrune(object.ManagedFields).ID())
}

// Append drops what sjson drops, at any place and in any spelling, and keeps dst.
func TestPruneProperty(t *testing.T) {
	value := rapid.SampledFrom([]string{`1`, `"x"`, `[{"managedFields":1},2]`, `{}`, `{"managedFields":{"f:a":{}}}`, `"\"managedFields\":"`, `null`})
	name := rapid.SampledFrom([]string{`"managedFields"`, `"managed\u0046ields"`, `"name"`, `"metadata"`, `"a\",\"managedFields"`})
	members := func(t *rapid.T, of string) string {
		var all []string
		for range rapid.IntRange(0, 4).Draw(t, of) {
			colon := rapid.SampledFrom([]string{":", ":", ":", " : "}).Draw(t, "colon")
			all = append(all, name.Draw(t, "name")+colon+value.Draw(t, "value"))
		}
		return "{" + strings.Join(all, rapid.SampledFrom([]string{",", ",", " , "}).Draw(t, "comma")) + "}"
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := `{"metadata":` + members(t, "metadata") + `,"spec":` + members(t, "spec") + `}`
		paths := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"metadata.managedFields", "spec", "spec.name", "metadata"}), rapid.ID).Draw(t, "paths")
		want, sorted := []byte(raw), slices.Sorted(slices.Values(paths))
		for _, path := range sorted {
			var err error
			want, err = sjson.DeleteBytes(want, path)
			require.NoError(t, err)
		}
		got, err := object.NewPrune(paths...).Append([]byte("before"), []byte(raw))
		require.NoError(t, err)
		require.Equal(t, "before"+string(want), string(got), "%s without %s", raw, paths)
	})
}

func TestObjectMeta(t *testing.T) {
	o, err := object.Parse([]byte(pod))
	require.NoError(t, err)
	var m metav1.Object = o.GetObjectMeta()
	require.Equal(t, "x", m.GetAnnotations()["example.com/owner"])
}

func TestCompareRV(t *testing.T) {
	_, ok := object.CompareRV("abc", "1")
	require.False(t, ok)
	_, ok = object.CompareRV("", "1")
	require.False(t, ok)
	long := strings.Repeat("9", 30)
	cmp, ok := object.CompareRV(long, "1"+long)
	require.True(t, ok)
	require.Equal(t, -1, cmp)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		ja, _ := json.Marshal(a)
		jb, _ := json.Marshal(b)
		cmp, ok := object.CompareRV(string(ja), string(jb))
		if object.NewerRV(string(ja), string(jb)) != (cmp > 0) {
			t.Fatalf("NewerRV(%d, %d)", a, b)
		}
		want := 0
		if a < b {
			want = -1
		} else if a > b {
			want = 1
		}
		if !ok || cmp != want {
			t.Fatalf("CompareRV(%d, %d) = %d, %v", a, b, cmp, ok)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(pod))
	f.Add([]byte(`{"metadata":{"name":"a","labels":[1,2]}}`))
	f.Add(protobufPod(f))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := object.Parse(raw)
		if err != nil {
			return
		}
		_ = o.GetObjectMeta()
		_, _ = o.Field("spec.nodeName")
		if !json.Valid(o.JSON()) {
			t.Fatalf("%q has no valid JSON: %q", raw, o.JSON())
		}
		if o.Protobuf() {
			return
		}
		if out, err := object.NewPrune(object.ManagedFields).Append(nil, o.Raw()); err == nil && !json.Valid(out) {
			t.Fatalf("pruning made invalid JSON of %q: %q", raw, out)
		}
		if out := object.WithType(o.Raw(), "v1", "Pod"); !json.Valid(out) {
			t.Fatalf("typing made invalid JSON of %q: %q", raw, out)
		}
	})
}
