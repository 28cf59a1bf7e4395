package upstream

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Only what the server itself says of the resource that was asked for is a denial.
func TestDenied(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, x := range map[string]struct {
		code int
		body string
		want bool
	}{
		"denied":           {403, statusBody(403, "Forbidden", "no", `{"kind":"secrets"}`), true},
		"another resource": {403, statusBody(403, "Forbidden", "no", `{"kind":"pods"}`), false},
		"another group":    {403, statusBody(403, "Forbidden", "no", `{"kind":"secrets","group":"example.com"}`), false},
		"a proxy":          {403, "<html>sign in</html>", false},
		"401":              {401, statusBody(401, "Unauthorized", "no", `{"kind":"secrets"}`), false},
		"404":              {404, statusBody(404, "NotFound", "no", `{"kind":"secrets"}`), false},
		"allowed":          {200, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) { reply(w, x.code, x.body) })
			s := c.Source(SourceOptions{Resource: Resource{GVR: secrets.WithVersion("v1"), Kind: "Secret"}})
			require.Equal(t, x.want, Denied(s.Probe(t.Context(), "0"), secrets))
		})
	}
	require.False(t, Denied(nil, secrets))
	require.False(t, Denied(errors.New("forbidden"), secrets))
}
