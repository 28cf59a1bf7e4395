package table

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// TestStates has states that only controllers give to objects.
func TestStates(t *testing.T) {
	for _, tc := range []struct {
		group, resource, object string
		column                  int
		want                    any
	}{
		{"certificates.k8s.io", "certificatesigningrequests", `{"status":{"conditions":[{"type":"Approved","status":"True"}]}}`, 5, "Approved"},
		{"certificates.k8s.io", "certificatesigningrequests", `{"status":{"conditions":[{"type":"Approved","status":"True"}],"certificate":"QQ=="}}`, 5, "Approved,Issued"},
		{"certificates.k8s.io", "certificatesigningrequests", `{"status":{"conditions":[{"type":"Approved"},{"type":"Denied"}]}}`, 5, "Denied"},
		{"apiregistration.k8s.io", "apiservices", `{"status":{"conditions":[{"type":"Available","status":"True","reason":"Passed"}]}}`, 2, "True"},
		{"apiregistration.k8s.io", "apiservices", `{"status":{"conditions":[{"type":"Available","status":"False","reason":"FailedDiscoveryCheck"}]}}`, 2, "False (FailedDiscoveryCheck)"},
		{"apiregistration.k8s.io", "apiservices", `{"status":{"conditions":[{"type":"Available","status":"False"}]}}`, 2, "False"},
		{"autoscaling", "horizontalpodautoscalers", `{"spec":{}}`, 2, "<none>"},
		{"autoscaling", "horizontalpodautoscalers", `{"spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{}}},{"type":"Other"}]}}`, 2, "cpu: <unknown>/<auto>, <unknown type>"},
		{"networking.k8s.io", "ipaddresses", `{"spec":{}}`, 1, "<none>"},
		{"resource.k8s.io", "resourceclaims", `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, 1, "deleted"},
		{"flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", `{"spec":{"type":"Exempt"}}`, 2, "<none>"},
	} {
		cells, _, err := For(store.Info{Group: tc.group, Resource: tc.resource}, store.Description{}).Row([]byte(tc.object), time.Now())
		require.NoError(t, err)
		require.Equal(t, tc.want, cells[tc.column], "%s: %s", tc.resource, tc.object)
	}
}
