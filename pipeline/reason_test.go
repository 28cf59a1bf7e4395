package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
)

func TestListReason(t *testing.T) {
	info := store.Info{ID: "pods", Version: "v1", Resource: "pods", Transform: "drop:a"}
	synced := store.State{Synced: true, Checkpoint: store.Checkpoint{RV: "7"}}
	change := func(f func(*store.Info)) store.Info { i := info; f(&i); return i }
	for _, tc := range []struct {
		name  string
		want  store.Info
		state store.State
		why   store.Reason
	}{
		{"same", info, synced, ""},
		{"kind", change(func(i *store.Info) { i.Kind = "Pod" }), synced, store.ReasonScopeChanged},
		{"namespaces", change(func(i *store.Info) { i.Namespaced = !i.Namespaced }), synced, store.ReasonScopeChanged},
		{"never synced", info, store.State{}, store.ReasonInitial},
		{"selector", change(func(i *store.Info) { i.LabelSelector = "a=b" }), synced, store.ReasonScopeChanged},
		{"field", change(func(i *store.Info) { i.FieldSelector = "a=b" }), synced, store.ReasonScopeChanged},
		{"namespace", change(func(i *store.Info) { i.Namespace = "a" }), synced, store.ReasonScopeChanged},
		{"transform", change(func(i *store.Info) { i.Transform = "" }), synced, store.ReasonScopeChanged},
		{"version", change(func(i *store.Info) { i.Version = "v2" }), synced, store.ReasonScopeChanged},
		{"skipped", info, store.State{Synced: true, Checkpoint: store.Checkpoint{RV: "7", Skipped: true}}, store.ReasonSkipped},
		{"no resourceVersion", info, store.State{Synced: true}, store.ReasonInitial},
		{"no resourceVersion, selector", change(func(i *store.Info) { i.LabelSelector = "a=b" }), store.State{Synced: true}, store.ReasonScopeChanged},
	} {
		require.Equal(t, tc.why, pipeline.ListReason(info, tc.want, tc.state), tc.name)
	}
}
