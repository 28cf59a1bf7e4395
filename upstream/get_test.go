package upstream

import (
	"net/http"
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

		{"selected", SourceOptions{LabelSelector: "x=y"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 200, list(onePod), ""},
		{"selected by field", SourceOptions{FieldSelector: "spec.nodeName=n"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da%2Cspec.nodeName%3Dn", 200, list(onePod), ""},
		{"not selected", SourceOptions{LabelSelector: "x=y"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 200, list(""), "gone"},
		{"no resource", SourceOptions{LabelSelector: "x=y"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 404, statusBody(404, "NotFound", "no", `{"name":"a"}`), "no"},
		{"unusable", SourceOptions{LabelSelector: "x=y"}, "shop/a", listPath + "?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 200, list(`{"metadata":{}}`), "name"},
		{"selected another", SourceOptions{LabelSelector: "x=y"}, "mall/a", "/api/v1/namespaces/mall/pods?fieldSelector=metadata.name%3Da&labelSelector=x%3Dy", 200, list(onePod), "the server sent shop/a"},
	} {
		t.Run(x.name, func(t *testing.T) {
			asked := ""
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				reply(w, x.code, x.body)
			})
			x.opts.Resource, x.opts.Prune = pods, object.NewPrune(object.ManagedFields)
			x.opts.OnSkip = func(err error) { t.Errorf("skipped: %v", err) }
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

// Version reads one object's metadata with a list.
func TestVersion(t *testing.T) {
	list := func(items string) string {
		return `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[` + items + `]}`
	}
	const path = "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da&limit=1"
	for _, x := range []struct {
		name string
		opts SourceOptions
		key  string
		url  string // of the request; empty for none
		code int
		body string
		err  string // "gone" for ErrNoObject; empty for none
	}{
		{"object", SourceOptions{}, "shop/a", path, 200, list(onePod), ""},
		{"none", SourceOptions{}, "shop/a", path, 200, list(""), "gone"},
		{"selected", SourceOptions{LabelSelector: "x=y", FieldSelector: "spec.nodeName=n"}, "shop/a", "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da%2Cspec.nodeName%3Dn&labelSelector=x%3Dy&limit=1", 200, list(onePod), ""},
		{"own namespace", SourceOptions{Namespace: "shop"}, "shop/a", path, 200, list(onePod), ""},
		{"other namespace", SourceOptions{Namespace: "mall"}, "shop/a", "", 0, "", "gone"},
		{"no such path", SourceOptions{}, "shop/a", path, 404, statusBody(404, "NotFound", "no", `{"name":"a"}`), "no"},
		{"forbidden", SourceOptions{}, "shop/a", path, 403, statusBody(403, "Forbidden", "no", ""), "no"},
		{"another object", SourceOptions{}, "shop/a", path, 200, list(`{"metadata":{"name":"b","namespace":"shop","uid":"u","resourceVersion":"7"}}`), "the server sent shop/b"},
		{"no list", SourceOptions{}, "shop/a", path, 200, `{"kind":"Status"}`, "not a complete list"},
		{"noise", SourceOptions{}, "shop/a", path, 200, "<html>", "JSON"},
	} {
		t.Run(x.name, func(t *testing.T) {
			asked := ""
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				require.Contains(t, r.Header.Get("Accept"), "as=PartialObjectMetadataList;")
				reply(w, x.code, x.body)
			})
			x.opts.Resource = pods
			uid, rv, err := c.Source(x.opts).Version(t.Context(), x.key)
			require.Equal(t, x.url, asked)
			switch x.err {
			case "":
				require.NoError(t, err)
				require.Equal(t, []string{"u", "7"}, []string{uid, rv})
			case "gone":
				require.ErrorIs(t, err, ErrNoObject)
			default:
				require.ErrorContains(t, err, x.err)
				require.NotErrorIs(t, err, ErrNoObject)
			}
		})
	}
}

// VersionAt reads the state at a resourceVersion and reports whether the answer is of that state.
func TestVersionAt(t *testing.T) {
	for _, x := range []struct {
		name      string
		rv, items string
		code      int
		then      bool
		gone      bool
	}{
		{"then", "7", onePod, 200, true, false},
		{"none then", "7", "", 200, true, true},
		{"another state", "9", onePod, 200, false, false},
		{"no object, another state", "9", "", 200, false, true},
		{"forgotten", "", "", 410, false, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			asked := ""
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				if x.code != 200 {
					reply(w, x.code, statusBody(410, "Expired", "compacted", ""))
					return
				}
				reply(w, 200, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"`+x.rv+`"},"items":[`+x.items+`]}`)
			})
			uid, rv, then, err := c.Source(SourceOptions{Resource: pods}).VersionAt(t.Context(), "shop/a", "7")
			require.Equal(t, "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da&limit=1&resourceVersion=7&resourceVersionMatch=Exact", asked)
			require.Equal(t, x.then, then)
			switch {
			case x.gone:
				require.ErrorIs(t, err, ErrNoObject)
			case x.code != 200:
				require.True(t, apierrors.IsResourceExpired(err), "%v", err)
			default:
				require.NoError(t, err)
				require.Equal(t, []string{"u", "7"}, []string{uid, rv})
			}
		})
	}
}
