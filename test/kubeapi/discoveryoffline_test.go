package kubeapi

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDiscoveryOffline: to callers whose requests are forwarded, the documents of the API are the same without the server,
// also after a restart, and a resource that is not cached is one that can't be reached, not one that does not exist.
// The bearer of the agent's own token sees what is cached.
func TestDiscoveryOffline(t *testing.T) {
	users := newUsers(t, "discovery-offline", 6)
	s := forwardSite(t, shared.plane)
	s.awaitUsers(users)
	c := users[5].at(t, restConfig(t, s.cached))
	kubeconfig := kubeconfigOf(t, s.cached, users[5])
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "kubernetes-api", "discovery.json"))
		return err == nil
	}, patience, pollEvery, "the documents are kept")

	paths := []string{"/api", "/api/v1", "/apis"}
	var groups metav1.APIGroupList
	_, body := c.get(t, "/apis")
	require.NoError(t, json.Unmarshal([]byte(body), &groups))
	for _, g := range groups.Groups {
		paths = append(paths, "/apis/"+g.Name)
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	require.Greater(t, len(paths), 40)
	online, resources := map[string]any{}, s.kubectl(kubeconfig, "api-resources --sort-by=name")
	require.Zero(t, resources.code, resources.stderr)
	for _, path := range paths {
		online[path], _ = c.document(t, path)
	}

	s.link.Down()
	s.stop()
	s.start()
	for _, path := range paths {
		offline, age := c.document(t, path)
		require.Equal(t, online[path], offline, path)
		require.NotEmpty(t, age, path)
	}
	got := s.kubectl(kubeconfig, "api-resources --sort-by=name --cache-dir="+t.TempDir())
	require.Equal(t, resources.stdout, got.stdout, got.stderr)
	got = s.kubectl(kubeconfig, "get csr --cache-dir="+t.TempDir())
	require.Contains(t, got.stderr, "the kube-apiserver can't be reached, and this request is not one that the cache answers")
	require.Contains(t, s.kubectl(s.cached, "get csr --cache-dir="+t.TempDir()).stderr, "the server doesn't have a resource type")
	s.link.Up()
}

// document returns a document of discovery with its age, without what is this server's alone.
func (c *caller) document(t *testing.T, path string) (content map[string]any, age string) {
	t.Helper()
	answer, err := c.http.Get(c.base + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode, path)
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&content), path)
	delete(content, "serverAddressByClientCIDRs")
	list, _ := content["resources"].([]any)
	for _, r := range list {
		delete(r.(map[string]any), "storageVersionHash")
	}
	slices.SortFunc(list, func(a, b any) int { // the order of custom resources differs from that of aggregated documents
		return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
	})
	return content, answer.Header.Get("Age")
}
