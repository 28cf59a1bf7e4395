package upstream

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
)

func TestAllowed(t *testing.T) {
	review := func(status string) string {
		return `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{},"status":` + status + `}`
	}
	for _, test := range []struct {
		name    string
		code    int
		body    string
		allowed bool
		kind    ErrorClass
	}{
		{"allowed", 201, review(`{"allowed":true}`), true, ""},
		{"not allowed", 201, review(`{"allowed":false,"denied":true}`), false, ""},
		{"reviews are forbidden", 403, statusBody(403, "Forbidden", "no", ""), false, Forbidden},
		{"a login page", 200, "<html>sign in</html>", false, Other},
		{"another answer", 200, `{"kind":"Status"}`, false, Other},
		{"the server fails", 500, "oops", false, Server},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.Equal(t, "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews application/json", r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
				require.Contains(t, string(body), `"resourceAttributes":{"namespace":"shop","verb":"watch","group":"apps","resource":"deployments"}`)
				reply(w, test.code, test.body)
			})
			allowed, err := c.Allowed(t.Context(), authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "watch", Group: "apps", Resource: "deployments"})
			require.Equal(t, test.allowed, allowed)
			require.Equal(t, test.kind, Classify(err), "%v", err)
		})
	}
}
