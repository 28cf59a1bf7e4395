package library

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// keda scales a Deployment by the number of pods that match a selector, for which it has all pods in an informer: without
// what it does not read of them, by a transform of its own.
var keda = program{
	name:   "KEDA's operator, Deployments by the number of pods",
	source: func(t *testing.T) string { return moduleOf(t, "github.com/kedacore/keda/v2", "v2.21.0") }, pkg: "./cmd/operator",
	env: []string{"WATCH_NAMESPACE=", "KEDA_CLUSTER_OBJECT_NAMESPACE=keda"},
	prepare: func(t *testing.T, c kubernetes.Interface, source string) {
		t.Helper()
		defineAll(t, c, filepath.Join(source, "config", "crd", "bases"))
	},
	args: func(t *testing.T, _, dir string) []string {
		t.Helper()
		makeCertificate(t, dir)
		return []string{
			"--cert-dir", dir, "--metrics-bind-address=0", "--health-probe-bind-address=0", "--metrics-service-bind-address=127.0.0.1:0",
			"--kube-api-qps=200", "--kube-api-burst=200",
		}
	},
	work: makeScaledDeployments,
	done: func(t *testing.T, c kubernetes.Interface, _ *harness.Process, name string) (result string, all bool) {
		t.Helper()
		deployments, err := c.AppsV1().Deployments(name).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		scaled := 0
		for _, d := range deployments.Items {
			if result += fmt.Sprintln(d.Name, *d.Spec.Replicas); *d.Spec.Replicas > 0 {
				scaled++
			}
		}
		scalers, err := c.AutoscalingV2().HorizontalPodAutoscalers(name).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, s := range scalers.Items {
			result += fmt.Sprintln(s.Name, s.Spec.ScaleTargetRef.Name, s.Spec.MaxReplicas, s.Spec.Metrics[0].External.Metric.Name)
		}
		return strings.ReplaceAll(result, name, ""), len(scalers.Items) == tasks && scaled == tasks/2
	},
}

// makeScaledDeployments makes Deployments that are scaled by pods, and such pods for every second one.
func makeScaledDeployments(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	once := metav1.CreateOptions{}
	makeNamespace(t, c, name)
	containers := []corev1.Container{{Name: "main", Image: "example.com/shop"}}
	for i := range tasks {
		d := fmt.Sprintf("web-%02d", i)
		app, none := map[string]string{"app": d}, int32(0)
		_, err := c.AppsV1().Deployments(name).Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: d},
			Spec: appsv1.DeploymentSpec{
				Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: app},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: containers}},
			},
		}, once)
		require.NoError(t, err)
		if i%2 == 0 {
			_, err := c.CoreV1().Pods(name).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "till-" + d, Labels: map[string]string{"till-of": d}}, Spec: corev1.PodSpec{Containers: containers},
			}, once)
			require.NoError(t, err)
		}
		post(t, c, "/apis/keda.sh/v1alpha1/namespaces/"+name+"/scaledobjects", strings.ReplaceAll(`
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: NAME}
spec:
  scaleTargetRef: {name: NAME}
  pollingInterval: 10
  maxReplicaCount: 3
  triggers:
  - type: kubernetes-workload
    metadata: {podSelector: till-of=NAME, value: "1"}
`, "NAME", d))
	}
}
