package kubeapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// signals are what a collector gets of a pod, by the path of OTLP: with the names of the pod and its namespace in
// place of %s.
var signals = map[string]string{
	"traces": `{"resourceSpans":[{"resource":%s,"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c",` +
		`"spanId":"eee19b7ec3c1b174","name":"sale","kind":1,"startTimeUnixNano":"1","endTimeUnixNano":"2"}]}]}]}`,
	"metrics": `{"resourceMetrics":[{"resource":%s,"scopeMetrics":[{"metrics":[{"name":"sales","gauge":` +
		`{"dataPoints":[{"asInt":"1","timeUnixNano":"1"}]}}]}]}]}`,
	"logs": `{"resourceLogs":[{"resource":%s,"scopeLogs":[{"logRecords":[{"body":{"stringValue":"sold"}}]}]}]}`,
}

// collectorConfig has three pipelines, each with a k8sattributes processor and so with informers of its own. It takes the
// address of the receiver and the file of the exporter.
const collectorConfig = `
receivers:
  otlp: {protocols: {http: {endpoint: %q}}}
processors:
  k8sattributes:
    auth_type: kubeConfig
    wait_for_metadata: true
    wait_for_metadata_timeout: 60s
    extract:
      metadata: [k8s.pod.uid, k8s.pod.start_time, k8s.node.name]
      labels: [{tag_name: app, key: app, from: pod}]
    pod_association:
    - sources: [{from: resource_attribute, name: k8s.pod.name}, {from: resource_attribute, name: k8s.namespace.name}]
exporters:
  file: {path: %q, flush_interval: 100ms}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], processors: [k8sattributes], exporters: [file]}
    metrics: {receivers: [otlp], processors: [k8sattributes], exporters: [file]}
    logs: {receivers: [otlp], processors: [k8sattributes], exporters: [file]}
`

// collect runs an OpenTelemetry collector, and returns the attributes that it adds to a span, a metric and a line of a log
// of a pod.
func (o *othersRun) collect(t *testing.T, kubeconfig, namespace string) []string {
	t.Helper()
	dir := t.TempDir()
	address := harness.FreeAddress(t)
	config, out := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "out.json")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, collectorConfig, address, out), 0o600))
	p := harness.Start(t, o.command(t.Context(), kubeconfig, "collector", "--config", "file:"+config))

	resource := fmt.Sprintf(`{"attributes":[{"key":"k8s.pod.name","value":{"stringValue":"web-0"}},`+
		`{"key":"k8s.namespace.name","value":{"stringValue":%q}}]}`, namespace)
	for path, signal := range signals {
		require.Eventually(t, func() bool {
			require.True(t, p.Running(), "the collector has ended")
			answer, err := http.Post("http://"+address+"/v1/"+path, "application/json", strings.NewReader(fmt.Sprintf(signal, resource)))
			if err != nil {
				return false // it does not listen before its informers have synced
			}
			require.NoError(t, answer.Body.Close())
			return answer.StatusCode == http.StatusOK
		}, 2*patience, lookEvery, path)
	}
	var found []string
	require.Eventually(t, func() bool {
		raw, _ := os.ReadFile(out)
		found = nil
		for line := range bytes.Lines(raw) {
			var signal map[string][]struct {
				Resource struct {
					Attributes []struct {
						Key   string
						Value struct{ StringValue string }
					}
				}
			}
			if json.Unmarshal(line, &signal) != nil {
				return false // a part of a line
			}
			for kind, resources := range signal {
				for _, a := range resources[0].Resource.Attributes {
					found = append(found, kind+" "+a.Key+"="+a.Value.StringValue)
				}
			}
		}
		return bytes.Count(raw, []byte("\n")) == len(signals)
	}, patience, 100*time.Millisecond, "the collector has written %q", found)
	p.Kill()
	slices.Sort(found)
	return found
}
