package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestProfileNode runs an agent with the profile of a node, on a server that has all of its resources:
// each catches up, and of the pods the node's are cached. A user of the cluster reads them with the
// kubeconfig that is printed with that user's credentials; another user may not.
func TestProfileNode(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	const node = "edge-00001.shops.example.com"
	x := newSite(t, settings{
		kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin),
		more:       "profile: node\nnodeName: " + node + "\nkubernetesAPI: {address: '" + harness.FreeAddress(t) + "', access: {enabled: true}}",
	})
	checked := x.checkConfig()
	require.Zero(t, checked.Code, checked.Stderr)
	require.Contains(t, string(checked.Stdout), "18 resources (profile node, of node "+node+"), all served by "+cp.URL())

	a := x.start()
	cached := a.awaitCaughtUp(anywhere("nodes", "pods", "configmaps", "services", "endpointslices.discovery.k8s.io", "namespaces",
		"servicecidrs.networking.k8s.io", "runtimeclasses.node.k8s.io",
		"persistentvolumeclaims", "persistentvolumes", "volumeattachments.storage.k8s.io", "csidrivers.storage.k8s.io", "csinodes.storage.k8s.io",
		"serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
		"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"))
	onNode := 0
	for _, pod := range onServer(t, cp, "pods") {
		if pod["spec"].(map[string]any)["nodeName"] == node {
			onNode++
		}
	}
	require.NotZero(t, onNode)
	require.EqualValues(t, onNode, cached["pods"].Objects)
	require.NotZero(t, cached["clusterroles.rbac.authorization.k8s.io"].Objects)
	require.NotZero(t, cached["servicecidrs.networking.k8s.io"].Objects)

	get := func(user string) *exec.Cmd {
		file := filepath.Join(x.dir, user+".kubeconfig")
		require.NoError(t, os.WriteFile(file, x.must("kubeconfig", "--from", harness.Kubeconfig(t, cp, user)), 0o600))
		return exec.CommandContext(t.Context(), cp.KubectlPath(), "--kubeconfig", file,
			"get", "pods", "-A", "-o", "name", "--field-selector", "spec.nodeName="+node)
	}
	require.Len(t, strings.Fields(string(harness.Output(t, get(controlplane.Reader)))), onNode)
	r := harness.RunToEnd(t, get(controlplane.Stranger))
	require.NotZero(t, r.Code)
	require.Contains(t, r.Stderr, `cannot list resource "pods"`)
}
