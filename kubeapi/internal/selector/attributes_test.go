package selector

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// TestValues pins the form, which is in durable files.
func TestValues(t *testing.T) {
	tests := []struct {
		name   string
		a      Attributes
		values []string
	}{
		{name: "none"},
		{name: "empty fields", a: Attributes{Fields: map[string]string{"spec.nodeName": ""}}},
		{name: "labels", a: Attributes{Labels: map[string]string{"tier": "", "app": "till"}}, values: []string{"app=till\ntier="}},
		{name: "fields", a: Attributes{Fields: map[string]string{"type": "Opaque"}}, values: []string{"\ntype=Opaque"}},
		{
			name: "both",
			a: Attributes{
				Labels: map[string]string{"app": "till", "tier": ""},
				Fields: map[string]string{"status.phase": "Running", "spec.nodeName": "edge-1", "status.podIP": ""},
			},
			values: []string{"app=till\ntier=\n\nspec.nodeName=edge-1\nstatus.phase=Running"},
		},
		{
			name:   "escapes",
			a:      Attributes{Labels: map[string]string{"": ""}, Fields: map[string]string{"a=b": "\\n\n\x00="}},
			values: []string{"=\n\na\\eb=\\\\n\\n\\0\\e"},
		},
		{
			name:   "the longest value",
			a:      Attributes{Labels: map[string]string{"a": strings.Repeat("x", 16<<10-2)}},
			values: []string{"a=" + strings.Repeat("x", 16<<10-2)},
		},
		{
			name:   "too long for one value",
			a:      Attributes{Labels: map[string]string{"a": strings.Repeat("x", 16<<10-1)}},
			values: []string{"0000a=" + strings.Repeat("x", 16<<10-6), "0001xxxxx"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.values, test.a.Values())
			require.Equal(t, test.a.Values(), FromValues(test.values).Values())
		})
	}
}

// TestValuesProperty checks that a store keeps the values as they are, that nothing is lost, and that
// different attributes have different values.
func TestValuesProperty(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("ab=\\\n\x00en0"))))
	long := rapid.Custom(func(t *rapid.T) string { return strings.Repeat(text.Draw(t, "part"), 6000) })
	attributes := rapid.Custom(func(t *rapid.T) Attributes {
		return Attributes{
			Labels: rapid.MapOfN(text, text, 0, 4).Draw(t, "labels"),
			Fields: rapid.MapOfN(text, rapid.OneOf(text, text, text, long), 0, 4).Draw(t, "fields"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := attributes.Draw(t, "a"), attributes.Draw(t, "b")
		values := a.Values()
		kept := store.Index{Func: func(*object.Object) []string { return slices.Clone(values) }}.Values(nil)
		require.Equal(t, values, kept)
		require.Equal(t, withoutEmpty(a), withoutEmpty(FromValues(values)))
		require.Equal(t, slices.Equal(values, b.Values()), reflect.DeepEqual(withoutEmpty(a), withoutEmpty(b)))
	})
}

// withoutEmpty returns attributes without empty fields, which are not stored.
func withoutEmpty(a Attributes) Attributes {
	s := Attributes{Labels: map[string]string{}, Fields: map[string]string{}}
	for name, value := range a.Labels {
		s.Labels[name] = value
	}
	for name, value := range a.Fields {
		if value != "" {
			s.Fields[name] = value
		}
	}
	return s
}
