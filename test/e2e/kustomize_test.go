package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestKustomize renders the manifests with kubectl's kustomize, as `kubectl apply -k` does, and applies
// them to a server. It must warn of the node's directory, if there is one, and of nothing else. The RBAC
// rules in them must be those that their configuration needs.
func TestKustomize(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	// The definition of the operator's resource, without its schema.
	harness.Kubectl(t, cp, "apply", "-f", filepath.Join("testdata", "servicemonitors.yaml"))
	for _, tc := range []struct {
		name      string
		namespace string
		account   string // empty for one that the manifests do not have
		objects   []string
	}{
		{"base", "snapcache", "snapcache", []string{
			"Namespace /snapcache", "ServiceAccount snapcache/snapcache", "ClusterRole /snapcache", "ClusterRoleBinding /snapcache",
			"ConfigMap snapcache/snapcache-", "DaemonSet snapcache/snapcache",
		}},
		{"node-api", "snapcache", "snapcache", []string{
			"Namespace /snapcache", "ServiceAccount snapcache/snapcache", "ClusterRole /snapcache", "ClusterRoleBinding /snapcache",
			"Role kube-system/snapcache", "RoleBinding kube-system/snapcache", "ConfigMap snapcache/snapcache-", "DaemonSet snapcache/snapcache",
		}},
		{"hub", "snapcache-hub", "snapcache-hub", []string{
			"Namespace /snapcache-hub", "ServiceAccount snapcache-hub/snapcache-hub", "ClusterRole /snapcache-hub", "ClusterRoleBinding /snapcache-hub",
			"Role kube-system/snapcache-hub", "RoleBinding kube-system/snapcache-hub", "ConfigMap snapcache-hub/snapcache-hub-",
			"StatefulSet snapcache-hub/snapcache-hub", "Service snapcache-hub/snapcache-hub", "PodDisruptionBudget snapcache-hub/snapcache-hub",
			"NetworkPolicy snapcache-hub/snapcache-hub",
		}},
		{"spoke", "snapcache", "snapcache", []string{
			"Namespace /snapcache", "ServiceAccount snapcache/snapcache", "ClusterRole /snapcache", "ClusterRoleBinding /snapcache",
			"ConfigMap snapcache/snapcache-", "DaemonSet snapcache/snapcache",
		}},
		{"hub-monitoring", "snapcache-hub", "", []string{
			"ServiceMonitor snapcache-hub/snapcache-hub", "ClusterRole /snapcache-hub-metrics", "ClusterRoleBinding /snapcache-hub-metrics",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(deployed(t), tc.name)
			text := harness.Kubectl(t, cp, "kustomize", dir)
			rendered := manifests(t, text)
			require.ElementsMatch(t, tc.objects, slices.Collect(maps.Keys(rendered)))
			if tc.account != "" {
				requireConfigured(t, rendered, tc.namespace, tc.account)
				applyParts(t, cp, rendered, "Namespace", "ServiceAccount")
			}
			warnings := dryRun(t, cp, dir, len(rendered))
			if tc.namespace == "snapcache" {
				require.Contains(t, warnings, `restricted volume types (volume "cache" uses restricted volume type "hostPath")`)
				require.Equal(t, tc.name == "node-api", strings.Contains(warnings, "host namespaces (hostNetwork=true)"))
				for _, other := range []string{"runAsNonRoot", "runAsUser", "seccompProfile", "capabilities", "allowPrivilegeEscalation", "unknown field"} {
					require.NotContains(t, warnings, other)
				}
				return
			}
			require.Empty(t, warnings)
		})
	}

	t.Run("the restricted standard is enforced for hubs", func(t *testing.T) {
		text := harness.Kubectl(t, cp, "kustomize", filepath.Join(deployed(t), "hub"))
		pod := podOf(manifests(t, text)["StatefulSet snapcache-hub/snapcache-hub"])
		require.NoError(t, createPod(t, cp, pod))
		pod["containers"].([]any)[0].(map[string]any)["securityContext"].(map[string]any)["allowPrivilegeEscalation"] = true
		require.ErrorContains(t, createPod(t, cp, pod), `violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false`)
	})

	t.Run("a spoke falls back to the kube-apiserver", func(t *testing.T) {
		text := harness.Kubectl(t, cp, "kustomize", filepath.Join(deployed(t), "spoke"))
		files := manifests(t, text)["ConfigMap snapcache/snapcache-"]["data"].(map[string]any)
		require.Contains(t, files["agent.yaml"], "\nkubeconfig: /etc/snapcache/kubeconfig\n")
		require.Contains(t, files["agent.yaml"], "\nfallbackContext: apiserver\n")
		require.Contains(t, files["agent.yaml"], "\nrestore: {seed: hub}\n")
		requireServers(t, files["kubeconfig"].(string), "hub")
	})

	t.Run("a hub begins with what another one has", func(t *testing.T) {
		text := harness.Kubectl(t, cp, "kustomize", filepath.Join(deployed(t), "hub"))
		files := manifests(t, text)["ConfigMap snapcache-hub/snapcache-hub-"]["data"].(map[string]any)
		require.Contains(t, files["agent.yaml"], "\nkubeconfig: /etc/snapcache/kubeconfig\n")
		require.Contains(t, files["agent.yaml"], "\nrestore: {seed: hub}\n")
		requireServers(t, files["kubeconfig"].(string), "apiserver")
	})

	t.Run("an overlay sets another image", func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{"base", "hub", "spoke"} {
			overlay := fmt.Appendf(nil, "resources: [%s]\nimages: [{name: snapcache, newName: edge/snapcache, newTag: v1}]\n", relative(t, dir, filepath.Join(deployed(t), name)))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), overlay, 0o600))
			text := harness.Kubectl(t, cp, "kustomize", dir)
			require.Contains(t, string(text), "image: edge/snapcache:v1\n")
		}
	})
}

// requireServers checks the contexts of a kubeconfig.
func requireServers(t *testing.T, kubeconfig, current string) {
	t.Helper()
	servers, err := clientcmd.Load([]byte(kubeconfig))
	require.NoError(t, err)
	require.Equal(t, current, servers.CurrentContext)
	require.Equal(t, "https://snapcache-hub.snapcache-hub.svc", servers.Clusters[servers.Contexts["hub"].Cluster].Server)
	require.Equal(t, "https://kubernetes.default.svc", servers.Clusters[servers.Contexts["apiserver"].Cluster].Server)
}

// deployed returns the directory of the manifests.
func deployed(t *testing.T) string {
	t.Helper()
	root := harness.Root(t)
	return filepath.Join(root, "deploy", "kustomize")
}

// requireConfigured checks that the configuration is valid, that the RBAC objects are those that it
// needs, and that the pod has it, a read-only root file system and an image without a registry's host.
func requireConfigured(t *testing.T, rendered map[string]map[string]any, namespace, account string) {
	t.Helper()
	files := rendered["ConfigMap "+namespace+"/"+account+"-"]
	x := newSite(t, settings{resources: "- resource: nodes"})
	require.NoError(t, os.WriteFile(x.config, []byte(files["data"].(map[string]any)["agent.yaml"].(string)), 0o600))
	x.must("config", "check")
	printed := manifests(t, x.must("config", "rbac", "--name", account, "--namespace", namespace))
	rbac := map[string]map[string]any{}
	for name, o := range rendered {
		if strings.HasPrefix(o["apiVersion"].(string), "rbac.") || o["kind"] == "ServiceAccount" {
			rbac[name] = o
		}
	}
	require.Equal(t, printed, rbac, "generate it again: snapcache config rbac --config agent.yaml --name %s -n %s > rbac.yaml", account, namespace)
	for _, o := range rendered {
		if o["kind"] != "DaemonSet" && o["kind"] != "StatefulSet" {
			continue
		}
		pod := podOf(o)
		container := pod["containers"].([]any)[0].(map[string]any)
		require.Equal(t, account, pod["serviceAccountName"])
		require.Equal(t, true, container["securityContext"].(map[string]any)["readOnlyRootFilesystem"])
		require.Equal(t, "snapcache:latest", container["image"])
		name := map[string]any{"name": files["metadata"].(map[string]any)["name"]}
		require.Contains(t, pod["volumes"], map[string]any{"name": "config", "configMap": name}, "a change of the configuration is a roll-out")
	}
}

// podOf returns the specification of a workload's pods.
func podOf(workload map[string]any) map[string]any {
	return workload["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
}

// applyParts applies the objects of some kinds, for what a dry run of the others depends on.
func applyParts(t *testing.T, cp *controlplane.ControlPlane, rendered map[string]map[string]any, kinds ...string) {
	t.Helper()
	for _, kind := range kinds {
		for _, o := range rendered {
			if o["kind"] == kind {
				require.NoError(t, applyObject(t, cp, o))
			}
		}
	}
}

// createPod creates a pod with the claim of a StatefulSet's template, in a dry run.
func createPod(t *testing.T, cp *controlplane.ControlPlane, spec map[string]any) error {
	t.Helper()
	cache := map[string]any{"name": "cache", "persistentVolumeClaim": map[string]any{"claimName": "cache-0"}}
	spec = maps.Clone(spec)
	spec["volumes"] = append(slices.Clone(spec["volumes"].([]any)), cache)
	return applyObject(t, cp, map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "hub-0", "namespace": "snapcache-hub"}, "spec": spec,
	}, "--dry-run=server")
}

func applyObject(t *testing.T, cp *controlplane.ControlPlane, o map[string]any, options ...string) error {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "object.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err = cp.Kubectl(t.Context(), append([]string{"apply", "--server-side", "-f", path}, options...)...)
	return err
}

// dryRun applies so many objects of a directory to the server in a dry run, and returns its warnings.
func dryRun(t *testing.T, cp *controlplane.ControlPlane, dir string, objects int) (warnings string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cp.KubectlPath(), "apply", "--server-side", "--dry-run=server", "-k", dir, "--kubeconfig", harness.Kubeconfig(t, cp, controlplane.Admin))
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	require.Equal(t, objects, bytes.Count(out, []byte("serverside-applied (server dry run)")), "%s", out)
	return stderr.String()
}

func relative(t *testing.T, from, to string) string {
	t.Helper()
	from, err := filepath.EvalSymlinks(from)
	require.NoError(t, err)
	path, err := filepath.Rel(from, to)
	require.NoError(t, err)
	return path
}

// manifests returns objects by kind, namespace and name. The name of a ConfigMap lacks the hash of its
// content.
func manifests(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o map[string]any
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if o == nil {
			continue
		}
		meta := o["metadata"].(map[string]any)
		namespace, _ := meta["namespace"].(string)
		name := meta["name"].(string)
		if o["kind"] == "ConfigMap" {
			name = name[:strings.LastIndex(name, "-")+1]
		}
		all[fmt.Sprintf("%s %s/%s", o["kind"], namespace, name)] = o
	}
}
