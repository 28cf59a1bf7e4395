package localapi

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// anyObject draws an object as a server may send it: fields in any order, labels with characters
// that JSON escapes, labels in other places, and payloads on both sides of the compression limit.
func anyObject(t *rapid.T) *object.Object {
	text := rapid.SampledFrom([]string{"", "a", "b", "till", "é", `"`, `\`, "\n", "}", "labels"})
	has := rapid.MapOfN(rapid.SampledFrom([]string{"app", "tier", "labels", "x/y"}), text, 0, 3)
	metadata := map[string]any{
		"name": rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"), "namespace": rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, "namespace"),
		"uid": "u", "resourceVersion": "5", "annotations": has.Draw(t, "annotations"),
	}
	if rapid.Bool().Draw(t, "labelled") {
		metadata["labels"] = has.Draw(t, "labels")
	}
	fields := []string{"kind", "apiVersion", "metadata", "spec", "status"}
	values := map[string]any{
		"kind": "A", "apiVersion": "v1", "metadata": metadata, "spec": map[string]any{"metadata": map[string]any{"labels": has.Draw(t, "inner")}},
		"status": rapid.SliceOfN(text, 0, 300).Draw(t, "status"),
	}
	raw := "{"
	for i, field := range rapid.Permutation(fields).Draw(t, "fields") {
		value, err := json.Marshal(values[field])
		require.NoError(t, err)
		raw += map[bool]string{false: ","}[i == 0] + fmt.Sprintf("%q:%s", field, value)
	}
	o, err := object.Parse([]byte(raw + "}"))
	require.NoError(t, err)
	return o
}

// An answer has the bytes of the stored objects whose labels match, as they are when the objects are
// decoded one by one.
func TestObjects_AreTheBytesOfTheDecodedObjects(t *testing.T) {
	for _, tc := range []struct {
		name string
		open func(*testing.T) store.DB
	}{
		{"bolt", func(t *testing.T) store.DB { db, _ := newBolt(t); return db }},
		{"memory", func(*testing.T) store.DB { return memory.New() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db := tc.open(t)
			defer db.Close()
			src := FromDB(db, options(t, tc.name))
			sources := []Source{src, serve(t, src)}
			collections := []string{"configmaps", "secrets"}
			rapid.Check(t, func(t *rapid.T) {
				q := ObjectQuery{
					Namespace:     rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "only"),
					LabelSelector: rapid.SampledFrom([]string{"", "app", "!app", "app=till", "tier in (a,b),app!=a", "labels=labels", "x/y="}).Draw(t, "selector"),
				}
				selector, err := labels.Parse(q.LabelSelector)
				require.NoError(t, err)
				var want, got []string
				for _, id := range collections {
					require.NoError(t, db.Drop(id))
					c, err := db.Open(storetest.Info(id))
					require.NoError(t, err)
					r, err := c.Replace()
					require.NoError(t, err)
					for _, o := range rapid.SliceOfNDistinct(rapid.Custom(anyObject), 0, 8, (*object.Object).Key).Draw(t, id) {
						require.NoError(t, r.Apply([]store.Change{storetest.Put(o)}))
					}
					require.NoError(t, r.Commit(storetest.Checkpoint(5)))
					v, err := c.View()
					require.NoError(t, err)
					for o, err := range v.Objects("", "") {
						require.NoError(t, err)
						if (q.Namespace == "" || q.Namespace == o.GetNamespace()) && selector.Matches(labels.Set(o.Labels())) {
							want = append(want, string(o.JSON()))
						}
					}
					v.Close()
				}
				for _, src := range sources {
					got = nil
					require.NoError(t, src.Objects(context.Background(), collections, q, func(json []byte) error {
						got = append(got, string(json))
						return nil
					}))
					require.Equal(t, want, got)
				}
			})
		})
	}
}
