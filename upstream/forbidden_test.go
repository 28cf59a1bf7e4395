package upstream

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/object"
)

// IsForbidden accepts only a 403 from the server itself, about the requested resource.
func TestIsForbidden(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for _, x := range []struct {
		name string
		code int
		body string
		want bool
	}{
		{"denied", 403, statusBody(403, "Forbidden", "no", `{"kind":"secrets"}`), true},
		{"another resource", 403, statusBody(403, "Forbidden", "no", `{"kind":"pods"}`), false},
		{"another group", 403, statusBody(403, "Forbidden", "no", `{"kind":"secrets","group":"example.com"}`), false},
		{"a proxy", 403, "<html>sign in</html>", false},
		{"401", 401, statusBody(401, "Unauthorized", "no", `{"kind":"secrets"}`), false},
		{"404", 404, statusBody(404, "NotFound", "no", `{"kind":"secrets"}`), false},
		{"allowed", 200, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) { reply(w, x.code, x.body) })
			s := c.Source(SourceOptions{Resource: Resource{GVR: secrets.WithVersion("v1"), Kind: "Secret"}})
			require.Equal(t, x.want, IsForbidden(s.Probe(t.Context(), "0"), secrets))
		})
	}
	require.False(t, IsForbidden(nil, secrets))
	require.False(t, IsForbidden(errors.New("forbidden"), secrets))
}

func TestForbiddenNamesTheNamespace(t *testing.T) {
	requests := []struct {
		name string
		send func(*Source) error
	}{
		{"list", func(s *Source) error {
			_, err := s.List(t.Context(), ListOptions{}, func(*object.Object) error { return nil })
			return err
		}},
		{"watch", func(s *Source) error { _, err := s.Watch(t.Context(), "1", time.Minute); return err }},
		{"probe", func(s *Source) error { return s.Probe(t.Context(), "1") }},
		{"get", func(s *Source) error { _, err := s.Get(t.Context(), "shop/a"); return err }},
		{"current", func(s *Source) error { _, err := s.Current(t.Context(), "shop/a", ""); return err }},
		{"get at", func(s *Source) error { _, err := s.GetAt(t.Context(), "shop/a", "1"); return err }},
		{"versions", func(s *Source) error {
			_, err := s.Versions(t.Context(), VersionsOptions{}, func(Version) error { return nil })
			return err
		}},
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 403, statusBody(403, "Forbidden", "no", `{"kind":"tills"}`))
	})
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			in := r.send(c.Source(SourceOptions{Resource: tills, Namespace: "shop"}))
			require.Contains(t, Describe(in), "grant get, list and watch on tills in the namespace shop to this user")
			everywhere := r.send(c.Source(SourceOptions{Resource: tills}))
			require.Contains(t, Describe(everywhere), "grant get, list and watch on tills to this user")
		})
	}
}
