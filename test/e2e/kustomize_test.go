package e2e

import (
	"bytes"
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

	"github.com/snapcache/snapcache/test/controlplane"
)

// TestKustomize renders the manifests with kubectl's kustomize, as `kubectl apply -k` does, and
// applies them to a server, which must warn of the node's directory and of nothing else. The RBAC
// rules in them must be those that their configuration needs.
func TestKustomize(t *testing.T) {
	t.Parallel()
	cp := newControlPlane(t)
	root, err := controlplane.Root()
	require.NoError(t, err)
	base := filepath.Join(root, "deploy", "kustomize", "base")
	text, err := cp.Kubectl(t.Context(), "kustomize", base)
	require.NoError(t, err)
	rendered := manifests(t, text)

	x := newSite(t, settings{resources: "- resource: nodes"})
	var configs []map[string]any
	for name, o := range rendered {
		if strings.HasPrefix(name, "ConfigMap snapcache/snapcache-") {
			configs = append(configs, o)
		}
	}
	require.Len(t, configs, 1)
	agent := configs[0]["data"].(map[string]any)["agent.yaml"].(string)
	require.NoError(t, os.WriteFile(x.config, []byte(agent), 0o600))
	x.must("config", "check")
	printed := manifests(t, x.must("config", "rbac"))
	rbac := map[string]map[string]any{}
	for name, o := range rendered {
		if strings.HasPrefix(o["apiVersion"].(string), "rbac.") || o["kind"] == "ServiceAccount" {
			rbac[name] = o
		}
	}
	require.Equal(t, printed, rbac, "make it anew: snapcache config rbac --config agent.yaml > rbac.yaml")
	require.ElementsMatch(t, []string{
		"Namespace /snapcache", "ServiceAccount snapcache/snapcache", "ClusterRole /snapcache", "ClusterRoleBinding /snapcache", "DaemonSet apps snapcache/snapcache",
	}, slices.DeleteFunc(slices.Collect(maps.Keys(rendered)), func(s string) bool { return strings.HasPrefix(s, "ConfigMap") }))

	_, err = cp.Kubectl(t.Context(), "apply", "-f", filepath.Join(base, "namespace.yaml"))
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), cp.KubectlPath(), "apply", "--server-side", "--dry-run=server", "-k", base, "--kubeconfig", kubeconfig(t, cp, controlplane.Admin))
	cmd.Env = append(os.Environ(), "HOME="+x.dir)
	var told bytes.Buffer
	cmd.Stderr = &told
	out, err := cmd.Output()
	require.NoError(t, err, told.String())
	require.Equal(t, len(rendered), bytes.Count(out, []byte("serverside-applied (server dry run)")), "%s", out)
	require.Contains(t, told.String(), `restricted volume types (volume "cache" uses restricted volume type "hostPath")`)
	for _, other := range []string{"runAsNonRoot", "runAsUser", "seccompProfile", "capabilities", "allowPrivilegeEscalation", "unknown field"} {
		require.NotContains(t, told.String(), other)
	}

	pod := rendered["DaemonSet apps snapcache/snapcache"]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	container := pod["containers"].([]any)[0].(map[string]any)
	require.Equal(t, true, container["securityContext"].(map[string]any)["readOnlyRootFilesystem"])
	require.Equal(t, "snapcache:latest", container["image"], "no registry's host")
	require.Equal(t, configs[0]["metadata"].(map[string]any)["name"], pod["volumes"].([]any)[0].(map[string]any)["configMap"].(map[string]any)["name"], "a change of the configuration is a roll-out")

	// An overlay sets another image, without an edit of the manifests.
	require.NoError(t, os.WriteFile(filepath.Join(x.dir, "kustomization.yaml"), fmt.Appendf(nil, "resources: [%s]\nimages: [{name: snapcache, newName: edge/snapcache, newTag: v1}]\n", relative(t, x.dir, base)), 0o600))
	text, err = cp.Kubectl(t.Context(), "kustomize", x.dir)
	require.NoError(t, err)
	require.Contains(t, string(text), "image: edge/snapcache:v1\n")
}

func relative(t *testing.T, from, to string) string {
	t.Helper()
	from, err := filepath.EvalSymlinks(from)
	require.NoError(t, err)
	path, err := filepath.Rel(from, to)
	require.NoError(t, err)
	return path
}

// manifests returns objects by kind, group if it is not RBAC's, namespace and name.
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
		group := ""
		if o["apiVersion"] == "apps/v1" {
			group = "apps "
		}
		all[fmt.Sprintf("%s %s%s/%s", o["kind"], group, namespace, meta["name"])] = o
	}
}
