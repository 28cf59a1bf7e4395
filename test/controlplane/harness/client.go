package harness

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
)

// Clientset returns a client for objects of known types.
func Clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

// Dynamic returns a client for objects of any resource.
func Dynamic(t *testing.T, config *rest.Config) *dynamic.DynamicClient {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return c
}

// Kubeconfig returns the path of a user's kubeconfig.
func Kubeconfig(t *testing.T, cp *controlplane.ControlPlane, user string) string {
	t.Helper()
	path, err := cp.Kubeconfig(user)
	require.NoError(t, err)
	return path
}

// Kubectl runs kubectl as the admin, which must succeed, and returns its output.
func Kubectl(t *testing.T, cp *controlplane.ControlPlane, args ...string) []byte {
	t.Helper()
	out, err := cp.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return out
}

// Root returns the directory of the source tree.
func Root(t *testing.T) string {
	t.Helper()
	root, err := controlplane.Root()
	require.NoError(t, err)
	return root
}

// ReadFile returns the content of a file.
func ReadFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}
