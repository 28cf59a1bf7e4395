package kubeapi

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestAccessRights: the permissions that `snapcache config rbac` prints are enough for an agent that lets
// the cluster's users in.
func TestAccessRights(t *testing.T) {
	users := newUsers(t, "access-rights", 2) // the second one reads pods
	s := newSiteOf(t, shared.plane, accessResources(false), func(s *site) {
		s.access = true
		s.configure()
		s.server = s.asAgent("access-rights")
	})
	require.NoError(t, s.agent.await(t.Context(), s.resources))
	for i, want := range []int{http.StatusForbidden, http.StatusOK} {
		cached := users[i].at(t, restConfig(t, s.cached))
		code, body := cached.get(t, "/api/v1/namespaces/ns/pods")
		require.Equal(t, want, code, body)
	}
	users[0].token += "x"
	code, body := users[0].at(t, restConfig(t, s.cached)).get(t, "/api/v1/namespaces/ns/pods")
	require.Equal(t, http.StatusUnauthorized, code)
	require.JSONEq(t, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`, body)
	for _, file := range []string{"client-ca.crt", "token-keys.json"} {
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(s.dir, "kubernetes-api", file))
			return err == nil
		}, patience, pollEvery, file)
	}
}

// asAgent creates the service account that the agent needs, and returns the path of its kubeconfig.
func (s *site) asAgent(namespace string) string {
	s.t.Helper()
	ctx := s.t.Context()
	out, err := exec.Command(harness.Snapcache, "config", "rbac", "--config", filepath.Join(s.dir, "agent.yaml"), "--namespace", namespace, "-o", "json").Output()
	require.NoError(s.t, err)
	var list struct{ Items []map[string]any }
	require.NoError(s.t, json.Unmarshal(out, &list))
	for _, item := range list.Items {
		o := &unstructured.Unstructured{Object: item}
		objects, err := s.objectsOf(ctx, o)
		require.NoError(s.t, err)
		_, err = objects.Create(ctx, o, metav1.CreateOptions{})
		require.NoError(s.t, err, o.GetKind())
	}
	client := harness.Clientset(s.t, s.RESTConfig(controlplane.Admin))
	request, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "snapcache", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	config, err := clientcmd.LoadFromFile(s.server)
	require.NoError(s.t, err)
	for _, a := range config.AuthInfos {
		a.Token = request.Status.Token
	}
	path := filepath.Join(s.dir, "agent.kubeconfig")
	require.NoError(s.t, clientcmd.WriteToFile(*config, path))
	return path
}
