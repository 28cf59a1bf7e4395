package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// An index from a Spec returns the same values as the original.
func TestIndexFromSpec(t *testing.T) {
	o, err := object.Parse([]byte(`{"metadata":{"name":"a","labels":{"app":"till","a:b/c":"odd"}},"spec":{"nodeName":"edge-1"}}`))
	require.NoError(t, err)
	for _, want := range []store.Index{
		store.LabelIndex("app", "app"),
		store.LabelIndex("odd", "a:b/c"),
		store.FieldIndex("node", "spec.nodeName"),
		store.FieldIndex("absent", "spec.absent"),
	} {
		got, ok := store.IndexFromSpec(want.Name, want.Spec)
		require.True(t, ok, want.Spec)
		require.Equal(t, want.Name, got.Name)
		require.Equal(t, want.Spec, got.Spec)
		require.Equal(t, want.Values(o), got.Values(o), want.Spec)
	}
	for _, spec := range []string{"", "label", "label:", "field:", "mine", "mine:app", ":app"} {
		_, ok := store.IndexFromSpec("x", spec)
		require.False(t, ok, spec)
	}
}

// Zero bytes are replaced, values that are too long are left out.
func TestIndexValues(t *testing.T) {
	o, err := object.Parse([]byte(`{"metadata":{"name":"a"}}`))
	require.NoError(t, err)
	longest := strings.Repeat("v", store.MaxIndexValueBytes)
	for _, c := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{"a"}, []string{"a"}},
		{[]string{"b", "a", "b"}, []string{"a", "b"}},
		{[]string{"a\x00b"}, []string{"a\uFFFDb"}},
		{[]string{longest}, []string{longest}},
		{[]string{longest + "v"}, []string{}},
		{[]string{"a", longest + "v"}, []string{"a"}},
		{[]string{strings.Repeat("\x00", store.MaxIndexValueBytes)}, []string{}},
	} {
		require.Equal(t, c.want, store.Index{Func: func(*object.Object) []string { return c.in }}.Values(o))
	}
}
