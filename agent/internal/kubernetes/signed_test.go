package kubernetes

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/upstream"
)

// TestSigned: with a signer the kubelet's kubeconfig has the cluster's CA beside the agent's own, and the files of the
// signer go with the setting.
func TestSigned(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(start)
	other, err := serving.Ensure(t.TempDir(), start, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	cluster, err := upstream.New(&rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: other.CA}})
	require.NoError(t, err)
	defer cluster.Close()
	file, ca := filepath.Join(dir, "kubernetes-api", "kubelet.kubeconfig"), filepath.Join(dir, "kubernetes-api", "cluster-ca.crt")
	for range 2 {
		a := kubeletOf(t, dir, clock, func(c *config.AgentConfiguration) { c.KubernetesAPI.Signer = config.SignerKubeletServing })
		require.Nil(t, a.credentials.Issued(), "the agent's own is served")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		a.runSigned(ended, cluster)
		found, err := clientcmd.BuildConfigFromFlags("", file)
		require.NoError(t, err)
		require.Equal(t, string(a.credentials.CA)+string(other.CA), string(found.CAData))
		require.NoError(t, a.Close())
	}
	a := kubeletOf(t, dir, clock, func(*config.AgentConfiguration) {})
	require.Nil(t, a.credentials.Issued)
	require.NoFileExists(t, ca)
	found, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	require.Equal(t, string(a.credentials.CA), string(found.CAData))
	require.NoError(t, a.Close())

	// A directory in place of a file does not stop the agent.
	require.NoError(t, os.MkdirAll(filepath.Join(ca, "sub"), 0o700))
	a = kubeletOf(t, dir, clock, func(*config.AgentConfiguration) {})
	require.NoError(t, a.Close())
}
