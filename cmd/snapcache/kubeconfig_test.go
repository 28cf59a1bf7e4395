package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/kubeapi/serving"
)

// TestKubeconfig checks that a client with the printed kubeconfig reaches the API, and that it still
// does so after a restart.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cache.db")
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.URL.Path) })
	var restConfig *rest.Config // as printed during the first run
	address := "127.0.0.1:0"
	for range 2 {
		credentials, err := serving.Ensure(serving.Dir(path), time.Now(), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		l, err := credentials.Listen(address, serving.Files{}, nil)
		require.NoError(t, err)
		address = l.Addr().String()
		server := serving.NewServer(serving.Authenticate(access.NewAuthenticator(access.AuthenticatorOptions{Token: credentials.Token}), handler), slog.New(slog.DiscardHandler))
		done := make(chan error)
		go func() { done <- server.Serve(l) }()

		if restConfig == nil {
			file := filepath.Join(dir, "agent.yaml")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: snapcache.dev/v1alpha1
kind: AgentConfiguration
store: {path: %s}
localAPI: {socket: x.sock}
kubernetesAPI: {address: "%s"}
`, path, address), 0o600))
			var out, errOut bytes.Buffer
			require.Equal(t, exitOK, execute([]string{"snapcache", "kubeconfig", "--config", file}, &out, &errOut), errOut.String())
			restConfig, err = clientcmd.RESTConfigFromKubeConfig(out.Bytes())
			require.NoError(t, err)
			require.Equal(t, "https://"+address, restConfig.Host)
		}
		client, err := rest.HTTPClientFor(rest.CopyConfig(restConfig))
		require.NoError(t, err)
		answer, err := client.Get("https://" + address + "/api")
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.NoError(t, server.Shutdown(t.Context()))
		client.CloseIdleConnections()
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	}
}

func TestKubeconfig_NotReadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	cfg := config.Default()
	cfg.Store.Path = filepath.Join(t.TempDir(), "cache.db")
	cfg.KubernetesAPI.Address = "127.0.0.1:6445"
	require.NoError(t, os.Mkdir(serving.Dir(cfg.Store.Path), 0))
	_, err := kubeconfigOf(cfg, nil)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "run this as root or as the agent's user")
}
