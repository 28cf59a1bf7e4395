package kubeapi

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWatchForms(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := open(t, w, "allowWatchBookmarks=true", "Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
		w.change("a/x", "web", "n2")
		frames := s.frames(9)
		require.Len(t, frames, 4)
		for _, f := range frames {
			require.Equal(t, "PartialObjectMetadata", f.Object.Kind)
			require.Empty(t, f.Object.Spec.NodeName)
		}
		require.Equal(t, "BOOKMARK end@12", frames[2].String())
		require.Equal(t, "MODIFIED a/x@13", frames[3].String())

		s = open(t, w, "allowWatchBookmarks=true", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
		w.change("a/x", "web", "n3")
		frames = s.frames(9)
		require.Len(t, frames, 4)
		for i, f := range frames {
			require.Equal(t, "Table", f.Object.Kind)
			require.Equal(t, i == 0, f.Object.ColumnDefinitions != nil, "only the first has columns")
			require.Len(t, f.Object.Rows, 1)
		}
		require.Equal(t, "14", frames[3].Object.Metadata.ResourceVersion)
		require.Equal(t, "x", frames[3].Object.Rows[0].Object.Metadata.Name)
	})
}

// The metadata of an event is found once for all watches, and is a part of the object: it takes no memory.
func TestWatchPartialMetadataIsShared(t *testing.T) {
	const accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v="
	inBubble(t, func(t *testing.T, w *world) {
		streams := []*stream{open(t, w, "resourceVersion=12", "Accept", accept+"v1"), open(t, w, "resourceVersion=12", "Accept", accept+"v1beta1")}
		w.change("a/x", "web", "n2")
		raw := w.events.events[0].Object.JSON()
		found := w.events.events[0].metadata
		require.Same(t, &raw[bytes.Index(raw, found)], &found[0])
		for i, s := range streams {
			require.Equal(t, fmt.Sprintf(`{"type":"MODIFIED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%s","metadata":%s}}`+"\n",
				[]string{"v1", "v1beta1"}[i], found), s.frames(1)[0].raw)
		}
		w.events.events[0].metadata = []byte(`{"name":"found before"}`)
		require.Contains(t, open(t, w, "resourceVersion=12", "Accept", accept+"v1").frames(1)[0].raw, "found before")

		w.change("a/x", "db", "n2")
		s := open(t, w, "labelSelector=app%3Dweb&resourceVersion=13", "Accept", accept+"v1")
		require.Equal(t, []string{"DELETED a/x@14"}, s.texts(), "with the resourceVersion of its exit")
	})
}
