package library

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// prometheusOperator has all PrometheusRules in two informers, and the metadata of all Secrets in four. Of a Prometheus
// it makes a StatefulSet, a Secret with the configuration and a ConfigMap with the rules.
var prometheusOperator = program{
	name: "prometheus-operator, rules and monitors of Prometheuses",
	source: func(t *testing.T) string {
		t.Helper()
		dir := moduleOf(t, "github.com/prometheus-operator/prometheus-operator", "v0.85.0")
		// They are in modules of their own, at the same version.
		const module = "github.com/prometheus-operator/prometheus-operator/pkg/"
		command(t, dir, "go", "mod", "edit", "-dropreplace="+module+"apis/monitoring", "-dropreplace="+module+"client")
		command(t, dir, "go", "mod", "download", module+"apis/monitoring", module+"client")
		return dir
	},
	pkg: "./cmd/operator",
	seed: func(ctx context.Context, cp *controlplane.ControlPlane, n int) error {
		err := objects.SeedDirect(ctx, cp, prometheusRules.Group+"/"+prometheusRules.Resource, n, alertingRules)
		if err != nil {
			return err
		}
		return objects.SeedDirect(ctx, cp, "secrets", 3*n/10, objects.Secret)
	},
	churn: churnRules,
	prepare: func(t *testing.T, c kubernetes.Interface, source string) {
		t.Helper()
		defineAll(t, c, filepath.Join(source, "example", "prometheus-operator-crd"))
	},
	args: func(*testing.T, string, string) []string {
		return []string{"--web.listen-address=127.0.0.1:0", "--kubelet-endpoints=false"} // KUBECONFIG is set
	},
	work: makePrometheus,
	done: func(t *testing.T, c kubernetes.Interface, _ *harness.Process, name string) (result string, all bool) {
		t.Helper()
		const made = "prometheus-main" // by the operator, in any order: without the new rules there is no ConfigMap
		rules, err := c.CoreV1().ConfigMaps(name).Get(t.Context(), made+"-rulefiles-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "no rules", false
		}
		require.NoError(t, err)
		files := slices.Sorted(maps.Values(rules.Data)) // their names have the rules' UIDs
		packed, err := c.CoreV1().Secrets(name).Get(t.Context(), made, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "no configuration", false
		}
		require.NoError(t, err)
		unpacked, err := gzip.NewReader(bytes.NewReader(packed.Data["prometheus.yaml.gz"]))
		require.NoError(t, err)
		config, err := io.ReadAll(unpacked)
		require.NoError(t, err)
		set, err := c.AppsV1().StatefulSets(name).Get(t.Context(), made, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "no StatefulSet", false
		}
		require.NoError(t, err)
		args := set.Spec.Template.Spec.Containers[0].Args
		result = strings.Join(files, "") + string(config) + fmt.Sprint(*set.Spec.Replicas, args)
		return strings.ReplaceAll(result, name, ""), len(files) == tasks && strings.Count(result, "job_name: ") == tasks
	},
}

var prometheusRules = schema.GroupVersionResource{
	Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules",
}

// alertingRules returns ten rules in two groups, about 4 kB, as charts of applications install them.
func alertingRules(namespace string, i int, seed int64) *unstructured.Unstructured {
	random := rand.New(rand.NewPCG(uint64(seed), uint64(i))) //nolint:gosec // contents of a test
	groups := make([]any, 2)
	for g := range groups {
		rules := make([]any, 5)
		for r := range rules {
			app := fmt.Sprintf("%s-%08x", namespace, random.Uint32())
			const requests = `sum by (pod) (rate(http_requests_total{app="%s"%s}[5m]))`
			failed, all := fmt.Sprintf(requests, app, `,code=~"5.."`), fmt.Sprintf(requests, app, "")
			rules[r] = map[string]any{
				"alert":  fmt.Sprintf("TooManyErrors%d", r),
				"expr":   fmt.Sprintf("%s / %s > 0.0%d", failed, all, 1+random.IntN(9)),
				"for":    "10m",
				"labels": map[string]any{"severity": "warning", "team": fmt.Sprintf("team-%02d", random.IntN(30))},
				"annotations": map[string]any{
					"summary": app + " answers with errors",
					"runbook": fmt.Sprintf("https://runbooks.example.com/%016x", random.Uint64()),
				},
			}
		}
		groups[g] = map[string]any{"name": fmt.Sprintf("%s.%d", namespace, g), "interval": "30s", "rules": rules}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"groups": groups}}}
	o.SetAPIVersion(prometheusRules.GroupVersion().String())
	o.SetKind("PrometheusRule")
	o.SetNamespace(namespace)
	o.SetName(fmt.Sprintf("rules-%d", i))
	o.SetUID(types.UID(fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64())))
	o.SetGeneration(1)
	o.SetCreationTimestamp(metav1.NewTime(time.Date(2026, 1, 12, 6, 0, i%60, 0, time.UTC)))
	o.SetLabels(map[string]string{"app": namespace, "release": fmt.Sprint("stable-", i%7)})
	return o
}

// churnRules changes rules until ctx ends, one after the other: one each 20 ms, or as soon as the server has answered.
func churnRules(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := client.Resource(prometheusRules).List(ctx, metav1.ListOptions{Limit: 1000})
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		item := list.Items[n%len(list.Items)]
		patch, err := json.Marshal(map[string]any{"spec": alertingRules(item.GetNamespace(), n, 2).Object["spec"]})
		if err != nil {
			return err
		}
		_, err = client.Resource(prometheusRules).Namespace(item.GetNamespace()).
			Patch(ctx, item.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// makePrometheus makes a Prometheus in a namespace, with rules and monitors.
func makePrometheus(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	makeNamespace(t, c, name)
	in := "/apis/monitoring.coreos.com/v1/namespaces/" + name
	for i := range tasks {
		post(t, c, in+"/prometheusrules", strings.ReplaceAll(`
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: NAME, labels: {scraped: main}}
spec: {groups: [{name: NAME, rules: [{alert: NAME, expr: "up{job=\"NAME\"} == 0"}]}]}
`, "NAME", fmt.Sprintf("web-%02d", i)))
		post(t, c, in+"/servicemonitors", strings.ReplaceAll(`
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: NAME, labels: {scraped: main}}
spec: {selector: {matchLabels: {app: NAME}}, endpoints: [{port: metrics}]}
`, "NAME", fmt.Sprintf("web-%02d", i)))
	}
	post(t, c, in+"/prometheuses", `
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: main}
spec:
  replicas: 2
  ruleSelector: {matchLabels: {scraped: main}}
  serviceMonitorSelector: {matchLabels: {scraped: main}}
`)
}
