package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestMonitoringMetrics checks that an agent has every metric of the alert rules and the dashboard,
// with the labels and values that they select by. The agent has a fallback, set aside a file, made a
// snapshot and verified itself against the server, and clients have used its Kubernetes API, so that it
// has all metrics there are.
func TestMonitoringMetrics(t *testing.T) {
	t.Parallel()
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, quietControlPlane(t), controlplane.Reader), resources: "- resource: configmaps", more: "fallbackContext: controlplane\nkubernetesAPI: {address: '" + harness.FreeAddress(t) + "'}"})
	require.NoError(t, os.MkdirAll(filepath.Dir(x.db), 0o700))
	require.NoError(t, os.WriteFile(x.db, []byte("no database of ours, and long enough to be looked at"), 0o600))
	a := x.start()
	a.awaitCaughtUp(anywhere("configmaps"))
	x.must("snapshot", "create")
	x.must("verify")
	a.beRead("/api/v1/configmaps")
	families := harness.Metrics(t, a.metrics)
	a.stop()

	root := harness.Root(t)
	text := ""
	for _, name := range []string{"monitoring/alerts.yaml", "monitoring/grafana-dashboard.json"} {
		b := harness.ReadFile(t, filepath.Join(root, name))
		text += string(b)
	}
	names := regexp.MustCompile(`\bsnapcache_[a-z_]+`).FindAllString(text, -1)
	require.NotEmpty(t, names)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		require.Contains(t, families, name, "no agent has this metric")
	}
	values := map[string]bool{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				values[fmt.Sprintf("%s %s=%s", name, l.GetName(), l.GetValue())] = true
			}
		}
	}
	for _, want := range []string{
		"snapcache_relists_total reason=initial", "snapcache_relists_total reason=scope-changed", "snapcache_relists_total reason=requested",
		"snapcache_events_total type=BOOKMARK", "snapcache_snapshots_total result=success", "snapcache_snapshots_total result=failure",
		"snapcache_store_quarantined reason=foreign", "snapcache_verify_drift_total kind=missing",
		"snapcache_kubernetes_api_requests_total verb=list", "snapcache_kubernetes_api_sent_bytes_total verb=watch", "snapcache_kubernetes_api_resumes_total tier=exact", "snapcache_kubernetes_api_refused_total reason=unauthorized",
		"snapcache_upstream_errors_total kind=unauthorized", "snapcache_upstream_errors_total kind=untrusted", "snapcache_upstream_errors_total kind=forbidden",
		"snapcache_upstream_errors_total kind=gone", "snapcache_upstream_errors_total kind=server", "snapcache_upstream_errors_total kind=other",
	} {
		require.True(t, values[want], want)
	}
}

// beRead lists a resource by the Kubernetes API, watches it for a second from there, and tries it without
// the token.
func (a *agent) beRead(path string) {
	a.t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(a.must("kubeconfig"))
	require.NoError(a.t, err)
	read := func(path string) (code int, body []byte) {
		client, err := rest.HTTPClientFor(config)
		require.NoError(a.t, err)
		defer client.CloseIdleConnections()
		return harness.Get(a.t, client, config.Host+path)
	}
	code, body := read(path)
	require.Equal(a.t, http.StatusOK, code, "%s", body)
	var list metav1.PartialObjectMetadataList
	require.NoError(a.t, json.Unmarshal(body, &list))
	code, body = read(path + "?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=" + list.ResourceVersion)
	require.Equal(a.t, http.StatusOK, code, "%s", body)
	config.BearerToken = ""
	code, _ = read(path)
	require.Equal(a.t, http.StatusUnauthorized, code)
}
