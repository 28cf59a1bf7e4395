package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func metadataList(next, items string) string {
	return fmt.Sprintf(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9","continue":%q,"remainingItemCount":3},"items":[%s]}`, next, items)
}

func metadataItem(name, rv string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop","uid":"u-%s","resourceVersion":%q}}`, name, name, rv)
}

// Versions reads pages of metadata, and continues if the server has compacted the state of the
// first page.
func TestVersions(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.Contains(t, r.Header.Get("Accept"), "as=PartialObjectMetadataList")
		token := r.URL.Query().Get("continue")
		asked = append(asked, token)
		switch token {
		case "":
			reply(w, 200, metadataList("two", metadataItem("a", "3")+","+metadataItem("b", "4")))
		case "two":
			reply(w, 410, `{"kind":"Status","apiVersion":"v1","metadata":{"continue":"newer"},"status":"Failure","reason":"Expired","code":410}`)
		case "newer":
			reply(w, 200, metadataList("", metadataItem("c", "12")))
		}
	})
	var got []Version
	var remaining []int64
	opts := VersionsOptions{PageSize: 2, Between: func(n int64) error { remaining = append(remaining, n); return nil }}
	each := func(v Version) error { got = append(got, v); return nil }
	require.NoError(t, podSource(c).Versions(t.Context(), opts, each))
	require.Equal(t, []string{"", "two", "newer"}, asked)
	require.Equal(t, []Version{{"shop/a", "u-a", "3"}, {"shop/b", "u-b", "4"}, {"shop/c", "u-c", "12"}}, got)
	require.Equal(t, []int64{3}, remaining)

	stop := errors.New("stop")
	require.ErrorIs(t, podSource(c).Versions(t.Context(), opts, func(Version) error { return stop }), stop)
	opts.Between = func(int64) error { return stop }
	require.ErrorIs(t, podSource(c).Versions(t.Context(), opts, each), stop)
}

// A body that is not a list, or lacks the fields to compare, is an error and never an empty result.
func TestVersionsInvalidBody(t *testing.T) {
	for _, body := range []string{`{}`, `{"kind":"Status","apiVersion":"v1"}`, metadataList("", `{"metadata":{"name":"a"}}`), metadataList("", `{}`), "<html>"} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, body) })
		require.Error(t, podSource(c).Versions(t.Context(), VersionsOptions{PageSize: 2}, func(Version) error { return nil }), body)
	}
}
