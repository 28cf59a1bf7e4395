package unmodified

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestKubeconfigOf(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"run", "-v", "2"}, ""},
		{[]string{"--kubeconfig", "/a"}, "/a"},
		{[]string{"-kubeconfig=/a", "--kubeconfig=/b"}, "/a"},
		{[]string{"--kubeconfig"}, ""},
		{[]string{"kubeconfig", "/a"}, ""},
	} {
		require.Equal(t, c.want, kubeconfigOf(c.args), c.args)
	}
}

func TestConstructor_WithoutDirectory(t *testing.T) {
	t.Setenv(DirVariable, "")
	require.Nil(t, Constructor())
}

// TestConstructor_WithoutCluster: a program whose connection can't be found has client-go's informers.
func TestConstructor_WithoutCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	t.Setenv(DirVariable, dir)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	require.Nil(t, Constructor()(&cache.ListWatch{}, &corev1.Pod{}, cache.SharedIndexInformerOptions{}))
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}
