package kubeapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
)

// TestDrop checks that a client gets objects without what it drops: by get, by list, and by watch, from
// the beginning, of the history, and live. Other fields, other clients and other forms are as always.
func TestDrop(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		paths := []string{"metadata.labels", "spec", "metadata.uid", "metadata.absent"}
		wrong := []string{"#", "@this", "metadata.*", "a|b", "", "metadata.name.", strings.Repeat("x", 1000)}
		get := func(url string, header ...string) string {
			rec, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, url, nil)
			for i := 0; i < len(header); i += 2 {
				r.Header.Add(header[i], header[i+1])
			}
			w.server.ServeHTTP(rec, r)
			require.Equal(t, http.StatusOK, rec.Code, rec.Body)
			return rec.Body.String()
		}
		var drop, ignored []string
		for _, path := range paths {
			drop = append(drop, object.DropHeader, path)
		}
		for _, path := range wrong {
			ignored = append(ignored, object.DropHeader, path)
		}
		prune := object.NewPrune(paths...)
		without := func(key string) string {
			raw, err := prune.Append(nil, w.objects[key].object().Raw())
			require.NoError(t, err)
			require.NotContains(t, string(raw), "labels")
			return string(raw)
		}
		const list, one = "/api/v1/pods?resourceVersion=0", "/api/v1/namespaces/a/pods/x?resourceVersion=0"
		require.Equal(t, without("a/x")+"\n", get(one, drop...))
		bare := func(key string) string {
			return strings.Replace(without(key), `"kind":"Pod","apiVersion":"v1",`, "", 1)
		}
		require.Contains(t, get(list, drop...), `"items":[`+bare("a/x")+","+bare("b/x")+"]")
		for _, url := range []string{list, one} {
			require.Equal(t, get(url), get(url, ignored...), "paths that are not those of fields")
			for _, accept := range []string{"application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"} {
				require.Equal(t, get(url, "Accept", accept), get(url, append([]string{"Accept", accept}, drop...)...))
			}
		}

		from := w.rv
		w.change("a/x", "changed", "")
		streams := []struct {
			name   string
			stream *stream
		}{
			{"from the beginning", open(t, w, "", drop...)},
			{"of the history", open(t, w, fmt.Sprintf("resourceVersion=%d", from), drop...)},
		}
		w.change("b/x", "live", "")
		synctest.Wait()
		for _, tc := range streams {
			require.NotContains(t, string(tc.stream.written()), "labels", tc.name)
			require.Contains(t, string(tc.stream.written()), without("a/x"), tc.name)
			require.Contains(t, string(tc.stream.written()), `{"type":"MODIFIED","object":`+without("b/x")+"}\n", tc.name)
		}
		require.Contains(t, string(open(t, w, "").written()), "labels")
	})
}
