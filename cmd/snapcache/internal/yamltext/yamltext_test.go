package yamltext

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/object"
)

// For any stored JSON, a Kubernetes client reads the same object from our YAML, which is what the
// library prints.
func TestYAMLRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": "a"}, "v": anyJSON(4).Draw(t, "value")})
		require.NoError(t, err)
		requireSameInYAML(t, raw)
	})
}

func anyJSON(depth int) *rapid.Generator[any] {
	text := rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{
			"", "no", "yes", "y", "null", "~", "0123", "1e3", "12:34:56", "2026-01-02", "0x1F", "1_000", ".inf", "=", "<<", "- a", "a: b",
			"#", "a #b", "a#b", "#a", ":a", "a:", "- a", "-a", "-", "--", "---a", "...a", "?", "? a", "?a", "!a", "&a", "*a", "[a", "{a", "|a", ">a",
			"a'b", "12:34", "+1:2", "on", "Off", "yes!", "nod", "k8s-app", "a-1", "a-10", "a-2", "a.b", "a-b", "a_b", "ab", "aB", "a/b", "10.0.0.1", "1.5", "12e",
			"2026-01-02T03:04:05Z", "a\tb", "  a\n b", "a\n\n", "\n\na", "a \nb", "a\r\n", "é", "a: b\nc", "0b1", "0o7", ".5", "<<a", "=a",
			"#", " lead", "trail ", "\n", "a\nb\n", "\t", "\x7f", "\u0085", "\u2028", "\ufeff", "\uffff", "😀", "'", "\"", "\\", "%", "@", "`", "---", "...",
			strings.Repeat("long words ", 40), strings.Repeat("k", 1100),
		}),
	)
	leaves := []*rapid.Generator[any]{
		text.AsAny(), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Uint64().AsAny(), rapid.Int32().AsAny(),
		rapid.Float64Range(-1e15, 1e15).AsAny(), rapid.Just[any](nil),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	below := anyJSON(depth - 1)
	key := rapid.OneOf(text, rapid.StringMatching(`[a-zA-Z0-9./_-]{1,6}`))
	return rapid.OneOf(append(leaves,
		rapid.MapOfN(key, below, 0, 4).AsAny(), rapid.SliceOfN(below, 0, 4).AsAny())...)
}

// requireSameInYAML writes an object twice, as a document and as an item of a list.
func requireSameInYAML(t require.TestingT, raw []byte) {
	o, err := object.Parse(raw)
	require.NoError(t, err)
	var out, byLibrary bytes.Buffer
	require.NoError(t, Write(&out, o.JSON()))
	require.NoError(t, writeByLibrary(&byLibrary, o.JSON()))
	require.Equal(t, byLibrary.String(), out.String())
	back, err := yaml.YAMLToJSON(out.Bytes())
	require.NoError(t, err, "%s", out.String())
	require.JSONEq(t, string(raw), string(back), "%s", out.String())

	var item, listByLibrary bytes.Buffer
	require.NoError(t, WriteItem(&item, o.JSON()))
	require.NoError(t, writeByLibrary(&listByLibrary, slices.Concat([]byte("["), o.JSON(), []byte("]"))))
	require.Equal(t, listByLibrary.String(), item.String())
}

// JSON that sigs.k8s.io/yaml's conversion refuses or changes.
func TestYAMLUnusualJSON(t *testing.T) {
	for _, v := range []string{
		`"\ud83d\ude00"`, `"\/"`, `"\t\n"`, `{"no":"\ta\nb"}`, `"` + "\x7f" + `"`, `"` + "\uffff" + `"`, `{"` + strings.Repeat("k", 2000) + `":1}`, `{"<<":{"x":1}}`,
		`[12345678901234567890,1.5,-9223372036854775808,1e10]`,
	} {
		requireSameInYAML(t, []byte(`{"metadata":{"name":"a"},"v":`+v+`}`))
	}
	var out bytes.Buffer
	o, err := object.Parse([]byte(`{"metadata":{"name":"a"},"v":[12345678901234567890,123456789012]}`))
	require.NoError(t, err)
	require.NoError(t, Write(&out, o.JSON()))
	require.Equal(t, "metadata:\n  name: a\nv:\n- 12345678901234567890\n- 123456789012\n", out.String())
}
