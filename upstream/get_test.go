package upstream

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/object"
)

const onePod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"7","managedFields":[{}]}}`

// Get reports ErrNoObject only if the server has the resource and not the object.
func TestGet(t *testing.T) {
	list := func(items string) string {
		return `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[` + items + `]}`
	}
	const path, listPath = "/api/v1/namespaces/shop/pods/a", "/api/v1/namespaces/shop/pods"
	for _, x := range []struct {
		name string
		opts SourceOptions
		key  string
		url  string // of the request; empty for none
		code int
		body string
		err  string // "gone" for ErrNoObject; empty for none
	}{
		{"object", SourceOptions{}, "shop/a", path, 200, onePod, ""},
		{"own namespace", SourceOptions{Namespace: "shop"}, "shop/a", path, 200, onePod, ""},
		{"other namespace", SourceOptions{Namespace: "mall"}, "shop/a", "", 0, "", "gone"},
		{"no such object", SourceOptions{}, "shop/a", path, 404, statusBody(404, "NotFound", "pods \"a\" not found", `{"name":"a","kind":"pods"}`), "gone"},
		{"no such path", SourceOptions{}, "shop/a", path, 404, "404 page not found\n", "could not find the requested resource"},
		{"404 of no detail", SourceOptions{}, "shop/a", path, 404, statusBody(404, "NotFound", "no such thing", ""), "no such thing"},
		{"forbidden", SourceOptions{}, "shop/a", path, 403, statusBody(403, "Forbidden", "no", ""), "no"},
		{"another object", SourceOptions{}, "shop/a", path, 200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"shop"}}`, "the server sent shop/b"},
		{"another type", SourceOptions{}, "shop/a", path, 200, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}`, "another type"},
		{"noise", SourceOptions{}, "shop/a", path, 200, "<html>", "JSON"},
		{"at 16 MiB", SourceOptions{}, "shop/a", path, 200, onePod + strings.Repeat(" ", maxObject-len(onePod)), ""},
		{"over 16 MiB", SourceOptions{}, "shop/a", path, 200, onePod + strings.Repeat(" ", maxObject-len(onePod)+1), ErrTooLarge.Error()},

		{"selected", SourceOptions{LabelSelector: "x=y"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 200, list(onePod), ""},
		{"selected by field", SourceOptions{FieldSelector: "spec.nodeName=n"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da%2Cspec.nodeName%3Dn", 200, list(onePod), ""},
		{"not selected", SourceOptions{LabelSelector: "x=y"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 200, list(""), "gone"},
		{"no resource", SourceOptions{LabelSelector: "x=y"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 404, statusBody(404, "NotFound", "no", `{"name":"a"}`), "no"},
		{"unusable", SourceOptions{LabelSelector: "x=y"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 200, list(`{"metadata":{}}`), "name"},
		{"another object selected", SourceOptions{LabelSelector: "x=y"}, "mall/a", "/api/v1/namespaces/mall/pods?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 200, list(onePod), "the server sent shop/a"},
	} {
		t.Run(x.name, func(t *testing.T) {
			asked := ""
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				reply(w, x.code, x.body)
			})
			x.opts.Resource, x.opts.Prune = pods, object.NewPrune(object.ManagedFields)
			o, err := c.Source(x.opts).Get(t.Context(), x.key)
			require.Equal(t, x.url, asked)
			switch x.err {
			case "":
				require.NoError(t, err)
				require.JSONEq(t, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"7"}}`, string(o.Raw()))
			case "gone":
				require.ErrorIs(t, err, ErrNoObject)
			default:
				require.ErrorContains(t, err, x.err)
				require.NotErrorIs(t, err, ErrNoObject)
			}
		})
	}
}

// The object's resource is cluster-scoped.
func TestGetClusterScoped(t *testing.T) {
	nodes := pods
	nodes.GVR.Resource, nodes.Kind, nodes.Namespaced = "nodes", "Node", false
	asked := ""
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		reply(w, 200, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"edge-1"}}`)
	})
	o, err := c.Source(SourceOptions{Resource: nodes}).Get(t.Context(), "edge-1")
	require.NoError(t, err)
	require.Equal(t, "edge-1", o.Key())
	require.Equal(t, "/api/v1/nodes/edge-1", asked)
}

// Current reads one object's metadata with a list: in the newest state or, with at, in a past one.
func TestCurrent(t *testing.T) {
	list := func(rv, items string) string {
		return `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"` + rv + `"},"items":[` + items + `]}`
	}
	const path = "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da&limit=1"
	const past = path + "&resourceVersion=5&resourceVersionMatch=Exact"
	const selected = "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da%2Cspec.nodeName%3Dn&labelSelector=x%3Dy&limit=1"
	other := `{"metadata":{"name":"b","namespace":"shop","uid":"u","resourceVersion":"7"}}`
	for _, x := range []struct {
		name string
		opts SourceOptions
		at   string
		url  string // of the request; empty for none
		code int
		body string
		want Current
		err  string
	}{
		{"object", SourceOptions{}, "", path, 200, list("9", onePod), Current{true, "u", "7", "7", "9"}, ""},
		{"none", SourceOptions{}, "", path, 200, list("9", ""), Current{At: "9", ListRV: "9"}, ""},
		{"selected", SourceOptions{LabelSelector: "x=y", FieldSelector: "spec.nodeName=n"}, "", selected, 200, list("9", onePod), Current{true, "u", "7", "7", "9"}, ""},
		{"own namespace", SourceOptions{Namespace: "shop"}, "", path, 200, list("9", onePod), Current{true, "u", "7", "7", "9"}, ""},
		{"other namespace", SourceOptions{Namespace: "mall"}, "", "", 0, "", Current{}, ErrNoObject.Error()},
		{"no such path", SourceOptions{}, "", path, 404, statusBody(404, "NotFound", "no", `{"name":"a"}`), Current{}, "no"},
		{"forbidden", SourceOptions{}, "", path, 403, statusBody(403, "Forbidden", "no", ""), Current{}, "no"},
		{"another object", SourceOptions{}, "", path, 200, list("9", other), Current{}, "the server sent shop/b"},
		{"object without a resourceVersion", SourceOptions{}, "", path, 200, list("9", `{"metadata":{"name":"a","namespace":"shop"}}`), Current{}, ErrBadList.Error()},
		{"none, without a resourceVersion", SourceOptions{}, "", path, 200, list("", ""), Current{}, ErrBadList.Error()},
		{"no list", SourceOptions{}, "", path, 200, `{"kind":"Status"}`, Current{}, ErrBadList.Error()},
		{"a table", SourceOptions{}, "", path, 200, `{"kind":"Table"}`, Current{}, ErrBadList.Error()},
		{"noise", SourceOptions{}, "", path, 200, "<html>", Current{}, "JSON"},
		{"over 16 MiB", SourceOptions{}, "", path, 200, list("9", onePod) + strings.Repeat(" ", maxObject), Current{}, ErrTooLarge.Error()},

		{"then", SourceOptions{}, "5", past, 200, list("5", onePod), Current{true, "u", "7", "5", "5"}, ""},
		{"absent at that state", SourceOptions{}, "5", past, 200, list("5", ""), Current{At: "5", ListRV: "5"}, ""},
		{"another state", SourceOptions{}, "5", past, 200, list("9", onePod), Current{true, "u", "7", "9", "9"}, ""},
		{"absent, answered from another state", SourceOptions{}, "5", past, 200, list("9", ""), Current{At: "9", ListRV: "9"}, ""},
		{"compacted", SourceOptions{}, "5", past, 410, statusBody(410, "Expired", "compacted", ""), Current{}, "compacted"},
	} {
		t.Run(x.name, func(t *testing.T) {
			asked := ""
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				require.Contains(t, r.Header.Get("Accept"), "as=PartialObjectMetadataList;")
				reply(w, x.code, x.body)
			})
			x.opts.Resource = pods
			now, err := c.Source(x.opts).Current(t.Context(), "shop/a", x.at)
			require.Equal(t, x.url, asked)
			require.Equal(t, x.want, now)
			if x.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, x.err)
			require.Equal(t, x.code == 410, apierrors.IsResourceExpired(err), "%v", err)
		})
	}
}

// GetAt returns an object of exactly the state that is asked for, or an error.
func TestGetAt(t *testing.T) {
	list := func(rv, items string) string {
		return `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"` + rv + `"},"items":[` + items + `]}`
	}
	for _, x := range []struct {
		name string
		code int
		body string
		err  func(error) bool // nil for none
	}{
		{"object", 200, list("9", onePod), nil},
		{"gone", 200, list("9", ""), func(err error) bool { return errors.Is(err, ErrNoObject) }},
		{"a newer state", 200, list("10", onePod), func(err error) bool { return errors.Is(err, ErrBadList) }},
		{"compacted", 410, statusBody(410, "Expired", "too old", ""), apierrors.IsResourceExpired},
		{"all objects", 200, list("9", onePod+","+strings.ReplaceAll(onePod, `"a"`, `"b"`)), func(err error) bool { return errors.Is(err, ErrBadList) }},
		{"another object", 200, list("9", strings.ReplaceAll(onePod, `"a"`, `"b"`)), func(err error) bool { return errors.Is(err, ErrBadList) }},
		{"unusable", 200, list("9", `{"metadata":{}}`), func(err error) bool { return errors.Is(err, object.ErrNoMetadata) }},
		{"noise", 200, "<html>", func(err error) bool { return errors.Is(err, ErrBadList) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			asked := ""
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				reply(w, x.code, x.body)
			})
			s := c.Source(SourceOptions{Resource: pods, FieldSelector: "spec.nodeName=n", Prune: object.NewPrune(object.ManagedFields)})
			o, err := s.GetAt(t.Context(), "shop/a", "9")
			require.Equal(t, "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da%2Cspec.nodeName%3Dn&resourceVersion=9&resourceVersionMatch=Exact", asked)
			if x.err != nil {
				require.True(t, x.err(err), "%v", err)
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"7"}}`, string(o.Raw()))
		})
	}
}
