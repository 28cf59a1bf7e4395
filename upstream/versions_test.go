package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	rv, err := podSource(c).Versions(t.Context(), opts, each)
	require.NoError(t, err)
	require.Equal(t, "9", rv)
	require.Equal(t, []string{"", "two", "newer"}, asked)
	require.Equal(t, []Version{{"shop/a", "u-a", "3"}, {"shop/b", "u-b", "4"}, {"shop/c", "u-c", "12"}}, got)
	require.Equal(t, []int64{3}, remaining)

	stop := errors.New("stop")
	_, err = podSource(c).Versions(t.Context(), opts, func(Version) error { return stop })
	require.ErrorIs(t, err, stop)
	_, err = podSource(c).Versions(t.Context(), VersionsOptions{PageSize: 2, OneState: true}, each)
	require.True(t, apierrors.IsResourceExpired(err), "%v", err)
	opts.Between = func(int64) error { return stop }
	_, err = podSource(c).Versions(t.Context(), opts, each)
	require.ErrorIs(t, err, stop)
}

// A body that is not a list, or lacks the fields to compare, is an error and never an empty result.
func TestVersionsInvalidBody(t *testing.T) {
	for _, body := range []string{`{}`, `{"kind":"Status","apiVersion":"v1"}`, metadataList("", `{"metadata":{"name":"a"}}`), metadataList("", `{}`), "<html>"} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, body) })
		_, err := podSource(c).Versions(t.Context(), VersionsOptions{PageSize: 2}, func(Version) error { return nil })
		require.Error(t, err, body)
	}
}

// A server that has protobuf sends versions in that form.
func TestVersionsInProtobuf(t *testing.T) {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []metav1.PartialObjectMetadata{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "u-a", ResourceVersion: "3", Labels: map[string]string{"x": "y"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "u-b", ResourceVersion: "4"}},
	}}
	send := func() ([]Version, error) {
		raw, err := list.Marshal()
		require.NoError(t, err)
		u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Raw: raw}
		body, err := u.Marshal()
		require.NoError(t, err)
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
			w.Header().Set("Content-Type", first)
			_, _ = w.Write(append([]byte("k8s\x00"), body...))
		})
		var got []Version
		_, err = podSource(c).Versions(t.Context(), VersionsOptions{}, func(v Version) error { got = append(got, v); return nil })
		return got, err
	}
	got, err := send()
	require.NoError(t, err)
	require.Equal(t, []Version{{"shop/a", "u-a", "3"}, {"b", "u-b", "4"}}, got)
	list.Items[1].ResourceVersion = ""
	_, err = send()
	require.ErrorIs(t, err, ErrBadList)
	list.Items[0].Name = ""
	_, err = send()
	require.ErrorIs(t, err, ErrBadList)
}
