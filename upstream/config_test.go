package upstream

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func kubeconfig(server string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: edge
contexts:
- name: edge
  context: {cluster: shop, user: node}
clusters:
- name: shop
  cluster: {server: %q}
users:
- name: node
  user: {token: very-secret-token}
`, server)
}

// noConfig returns an empty directory and hides every configuration outside it.
func noConfig(t *testing.T) (dir string) {
	dir = t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	return dir
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoadConfig(t *testing.T) {
	dir := noConfig(t)
	given := write(t, filepath.Join(dir, "given"), kubeconfig("https://given:6443"))
	env := write(t, filepath.Join(dir, "env"), kubeconfig("https://env:6443"))
	write(t, filepath.Join(dir, ".kube", "config"), kubeconfig("https://home:6443"))

	cfg, err := LoadConfig("", "")
	require.NoError(t, err)
	require.Equal(t, "https://home:6443", cfg.Host)
	require.Equal(t, "very-secret-token", cfg.BearerToken)
	require.EqualValues(t, -1, cfg.QPS)
	require.Contains(t, cfg.UserAgent, "snapcache")
	require.Zero(t, cfg.Timeout)

	// In a pod without a token, the file in the home directory is still used.
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	cfg, err = LoadConfig("", "")
	require.NoError(t, err)
	require.Equal(t, "https://home:6443", cfg.Host)

	// Of several files, missing ones are ignored, and the first one wins.
	t.Setenv("KUBECONFIG", strings.Join([]string{filepath.Join(dir, "none"), env, given}, string(os.PathListSeparator)))
	cfg, err = LoadConfig("", "")
	require.NoError(t, err)
	require.Equal(t, "https://env:6443", cfg.Host)

	cfg, err = LoadConfig(given, "")
	require.NoError(t, err)
	require.Equal(t, "https://given:6443", cfg.Host)
}

func TestLoadConfigErrors(t *testing.T) {
	good := kubeconfig("https://a:6443")
	for _, tc := range []struct{ name, text, want string }{
		{"empty", " \n", "the file is empty: give one with --kubeconfig or in $KUBECONFIG"},
		{"no YAML", "very-secret-token", "the file is corrupt or not a kubeconfig"},
		{"other YAML", "a: [b", "the file is corrupt or not a kubeconfig"},
		{"other kind", "apiVersion: v1\nkind: Pod\n", "the file is corrupt or not a kubeconfig"},
		{"no context", strings.Replace(good, "current-context: edge", "", 1), "no current-context: choose one with kubectl config use-context (there are: edge)"},
		{"wrong context", strings.Replace(good, "current-context: edge", "current-context: hub", 1), "the current-context hub is not in the file"},
		{"no cluster", strings.Replace(good, "cluster: shop", "cluster: none", 1), "the cluster none of context edge is not in the file"},
		{"no user", strings.Replace(good, "user: node", "user: none", 1), "the user none of context edge is not in the file"},
		{"no server", kubeconfig(""), "no server"},
		{"bad base64", strings.Replace(good, "server:", `certificate-authority-data: "#", server:`, 1), "illegal base64"},
		{"CA file missing", strings.Replace(good, "server:", `certificate-authority: missing.crt, server:`, 1), "missing.crt"},
		{"key file missing", strings.Replace(good, "token:", `client-certificate: a.crt, client-key: b.key, token:`, 1), "a.crt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := write(t, filepath.Join(noConfig(t), "config"), tc.text)
			_, err := LoadConfig(path, "")
			require.True(t, strings.HasPrefix(err.Error(), "kubeconfig "+path+": "), err)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "secret")
			require.Equal(t, err.Error(), Describe(err))
		})
	}
}

func TestLoadConfigNoFile(t *testing.T) {
	dir := noConfig(t)
	_, err := LoadConfig("/x", "")
	require.EqualError(t, err, "kubeconfig /x: no such file: give one with --kubeconfig or in $KUBECONFIG")
	_, err = LoadConfig(dir, "")
	require.EqualError(t, err, "kubeconfig "+dir+": is a directory: give one with --kubeconfig or in $KUBECONFIG")

	_, err = LoadConfig("", "")
	require.EqualError(t, err, "no kubeconfig was given and none was found: give one with --kubeconfig or in $KUBECONFIG")

	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	_, err = LoadConfig("", "")
	require.ErrorContains(t, err, "this runs in a pod, but its service account can't be used")

	t.Setenv("KUBECONFIG", "/x:/y")
	_, err = LoadConfig("", "")
	require.ErrorContains(t, err, "kubeconfig /x:/y: ")
	require.ErrorContains(t, err, hintGive)
}

func TestLoadConfigPermission(t *testing.T) {
	path := write(t, filepath.Join(noConfig(t), "config"), kubeconfig("https://a:6443"))
	require.NoError(t, os.Chmod(path, 0))
	if _, err := os.ReadFile(path); err == nil {
		t.Skip("this user may read everything")
	}
	_, err := LoadConfig(path, "")
	require.EqualError(t, err, "kubeconfig "+path+": permission denied: make it readable for the user this runs as")
}

func TestNewErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  *rest.Config
	}{
		{"address", &rest.Config{Host: "https://user:very-secret@[::1"}},
		{"CA", &rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("not PEM")}}},
		{"key", &rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x"), KeyData: []byte("very-secret")}}},
		{"token", &rest.Config{Host: "https://a", BearerTokenFile: "missing.token"}},
		{"no key", &rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CertFile: "missing.crt", KeyFile: "missing.key"}}},
	} {
		_, err := New(tc.cfg)
		require.Error(t, err, tc.name)
		require.NotContains(t, Describe(err), "secret", tc.name)
		require.Contains(t, err.Error(), "kubeconfig", tc.name)
	}
}
