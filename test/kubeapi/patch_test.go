package kubeapi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

const patchedSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: till, namespace: shop}
spec:
  selector: {matchLabels: {app: till}}
  template:
    metadata: {labels: {app: till}}
    spec:
      serviceAccountName: till
      initContainers:
      - {name: wait, image: a}
      containers:
      - name: till
        image: b
        env: [{name: A, value: b}]
        volumeMounts: [{name: data, mountPath: /data}]
      - {name: side, image: c}
      volumes:
      - {name: data, emptyDir: {}}
`

// TestPatch: kubectl applies the patches of snapcache patch to a DaemonSet. The pods of the template have the address of
// their node, and with an authority of the fleet a volume of credentials; the undo leaves the spec as it was.
func TestPatch(t *testing.T) {
	on := newPlane(t)
	admin := harness.Clientset(t, on.RESTConfig(controlplane.Admin))
	ctx, dir := t.Context(), t.TempDir()
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.CoreV1().ServiceAccounts("shop").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "till"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	manifest := filepath.Join(dir, "set.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte(patchedSet), 0o600))
	harness.Kubectl(t, on.ControlPlane, "apply", "-f", manifest)
	read := func() (set *appsv1.DaemonSet) {
		t.Helper()
		set, err := admin.AppsV1().DaemonSets("shop").Get(ctx, "till", metav1.GetOptions{})
		require.NoError(t, err)
		return set
	}
	kubeconfig := harness.Kubeconfig(t, on.ControlPlane, controlplane.Admin)
	patch := func(args ...string) {
		t.Helper()
		cmd := exec.Command(harness.Snapcache, append([]string{"patch", "ds/till", "-n", "shop", "--kubeconfig", kubeconfig}, args...)...)
		out, err := cmd.Output()
		require.NoError(t, err)
		file := filepath.Join(dir, "patch.yaml")
		require.NoError(t, os.WriteFile(file, out, 0o600))
		harness.Kubectl(t, on.ControlPlane, "patch", "ds", "till", "-n", "shop", "--patch-file", file)
	}
	// pod returns a pod of the template, as the kube-apiserver admits it.
	pod := func() *corev1.Pod {
		t.Helper()
		made, err := admin.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Spec: read().Spec.Template.Spec},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
		return made
	}
	before := read().Spec
	for _, tc := range []struct {
		args       []string
		configMaps []string // without: the admission of service accounts, which is off here, adds kube-root-ca.crt
	}{{nil, nil}, {[]string{"--port", "7443", "--ca-configmap", "fleet-ca"}, []string{"fleet-ca"}}} {
		patch(tc.args...)
		require.NotEqual(t, before, read().Spec)
		made := pod()
		for _, c := range append(made.Spec.Containers, made.Spec.InitContainers...) {
			var host, port string
			for _, e := range c.Env {
				switch e.Name {
				case "KUBERNETES_SERVICE_HOST":
					host = e.ValueFrom.FieldRef.FieldPath
				case "KUBERNETES_SERVICE_PORT":
					port = e.Value
				}
			}
			require.Equal(t, "status.hostIP", host, c.Name)
			require.Equal(t, map[bool]string{true: "6445", false: "7443"}[tc.args == nil], port, c.Name)
			require.Equal(t, tc.configMaps, credentialsOf(made, c))
		}
		patch("--undo")
		require.Equal(t, before, read().Spec)
	}

	// The lines in the documentation have the same effect.
	page := string(harness.ReadFile(t, filepath.Join(harness.Root(t), "docs", "kubernetes-api.md")))
	_, lines, ok := strings.Cut(page, "\n    spec:\n      template:\n")
	require.True(t, ok)
	lines, _, _ = strings.Cut(lines, "\n\n")
	require.LessOrEqual(t, strings.Count(lines, "\n")+3, 10)
	file := filepath.Join(dir, "documented.yaml")
	require.NoError(t, os.WriteFile(file, []byte("    spec:\n      template:\n"+lines+"\n"), 0o600))
	harness.Kubectl(t, on.ControlPlane, "patch", "ds", "till", "-n", "shop", "--patch-file", file)
	documented := read().Spec.Template.Spec.Containers[0]
	patch("--undo")
	patch()
	require.Equal(t, read().Spec.Template.Spec.Containers[0], documented)
}

// credentialsOf returns the ConfigMaps whose authority a container of a pod finds beside its token.
func credentialsOf(pod *corev1.Pod, c corev1.Container) (all []string) {
	for _, m := range c.VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if m.MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" || v.Name != m.Name {
				continue
			}
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					all = append(all, s.ConfigMap.Name)
				}
			}
		}
	}
	return all
}
