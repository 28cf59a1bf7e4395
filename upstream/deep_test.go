package upstream

import (
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/object"
)

// deepObject returns an object that is nested depth levels deep, and has managedFields of fields levels. A
// string in it has brackets.
func deepObject(name string, depth, fields int) string {
	spec := strings.Repeat(`{"a":`, depth-1) + "0" + strings.Repeat("}", depth-1)
	managed := strings.Repeat("[", fields) + strings.Repeat("]", fields)
	return fmt.Sprintf(`{"apiVersion":"shop.example.com/v1","kind":"Till","metadata":{"name":%q,"namespace":"n","annotations":{"x":"}]\"{"},"managedFields":%s},"spec":%s}`, name, managed, spec)
}

// An object may be nested as deep as a kube-apiserver reads: the list around it, and what is pruned, do not
// count. A deeper one is named, and the rest of the list is delivered.
func TestListDeep(t *testing.T) {
	const list = `{"apiVersion":"shop.example.com/v1","items":[%s],"kind":"TillList","metadata":{"continue":"","resourceVersion":"12"}}`
	small := func(name string) string { return deepObject(name, 2, 1) }
	items := []string{
		small("a"), deepObject("b", 9_998, 1), deepObject("c", 9_999, 1), " " + deepObject("d", 10_000, 1) + " ", small("e"),
		deepObject("f", 10_001, 1), deepObject("g", 50_000, 1), deepObject("h", 9_999, 10_010), small("i"), deepObject("j", 10_000, 10_010),
	}
	body := fmt.Sprintf(list, strings.Join(items, ","))
	for _, chunk := range []string{"whole", "bytes"} {
		t.Run(chunk, func(t *testing.T) {
			r := iotest.DataErrReader(strings.NewReader(body))
			if chunk == "bytes" {
				r = iotest.OneByteReader(strings.NewReader(body))
			}
			p, got, skipped, err := readList(tills, object.NewPrune(object.ManagedFields), r)
			require.NoError(t, err)
			require.Equal(t, "12", p.rv)
			var keys []string
			for _, o := range got {
				keys = append(keys, o.Key())
			}
			require.Equal(t, []string{"n/a", "n/b", "n/c", "n/d", "n/e", "n/h", "n/i", "n/j"}, keys)
			require.Len(t, skipped, 2)
			for i, key := range []string{"n/f", "n/g"} {
				require.ErrorIs(t, skipped[i], ErrTooDeep)
				require.ErrorContains(t, skipped[i], key)
				require.NotContains(t, Describe(skipped[i]), "login page")
			}
		})
	}
	for _, broken := range []string{strings.Repeat("[", 20_000), `{"a":` + strings.Repeat("[", 20_000), strings.Replace(deepObject("a", 10_000, 1), `"spec":`, `"spec" `, 1)} {
		_, got, skipped, err := readList(tills, object.Prune{}, strings.NewReader(fmt.Sprintf(list, broken)))
		require.Empty(t, got)
		require.True(t, err != nil || len(skipped) == 1)
	}
}

func TestWatchDeep(t *testing.T) {
	event := func(o string) string { return `{"type":"MODIFIED","object":` + o + "}\n" }
	stream := event(deepObject("a", 10_000, 1)) + event(deepObject("b", 10_001, 1)) + event(deepObject("c", 9_999, 10_010)) + event(deepObject("d", 2, 1))
	r := &eventReader{frames: newLines(strings.NewReader(stream)), dec: decoding{tills, object.NewPrune(object.ManagedFields)}}
	for _, name := range []string{"a", "b", "c", "d"} {
		e, err := r.next()
		require.NoError(t, err)
		require.Equal(t, watch.Modified, e.Type)
		if name == "b" {
			invalid, ok := e.Object.(*InvalidObject)
			require.True(t, ok, "%T", e.Object)
			require.ErrorIs(t, invalid.Err, ErrTooDeep)
			require.Equal(t, "n/b", invalid.Key)
			continue
		}
		o, ok := e.Object.(*object.Object)
		require.True(t, ok, "%T %v", e.Object, e.Object)
		require.Equal(t, "n/"+name, o.Key())
	}
}

// Only a body that is no JSON object may come from a login page.
func TestDescribeBadLists(t *testing.T) {
	for body, login := range map[string]bool{
		"<html>sign in</html>": true, `"sign in"`: true, `{}`: false, `{"kind":"PodList","apiVersion":"v1","items":[`: false,
		`{"kind":"PodList","apiVersion":"v1","items":{}}`: false, `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[<]}`: false,
	} {
		_, _, _, err := readList(pods, object.Prune{}, strings.NewReader(body))
		require.ErrorIs(t, err, ErrBadList)
		require.Equal(t, login, strings.Contains(Describe(err), "login page"), "%s: %s", body, Describe(err))
	}
}
