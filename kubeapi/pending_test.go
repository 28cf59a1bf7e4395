package kubeapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// TestCollectionsAddedDuringRequest has the collections come while a request is answered that has not
// found them: it is refused for the moment, and not with 404, or with a document that lacks them.
func TestCollectionsAddedDuringRequest(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/a/pods?watch=1", "/api/v1", "/apis/apps/v1/deployments", "/apis"} {
		t.Run(path, func(t *testing.T) {
			asked := false
			s := New(Options{
				Collections: func() []*Collection { asked = true; return nil },
				Unknown: func() []Unknown {
					if asked {
						return nil
					}
					return []Unknown{{GroupResource: schema.GroupResource{Resource: "pods"}}, {GroupResource: schema.GroupResource{Group: "apps", Resource: "deployments"}}}
				},
				Clock: clock.RealClock{}, Metrics: NewMetrics(),
			})
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
		})
	}
}
