package kubeapi

import (
	"context"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// kubelet is a user that asks for the tokens of pods, at an agent.
type kubelet struct {
	t      *testing.T
	client kubernetes.Interface
}

// newKubelet returns a user with a client certificate, and its kubeconfig. It has no client yet.
func newKubelet(t *testing.T, on *plane, node string) (*controlplane.Client, string) {
	t.Helper()
	c, err := on.IssueClient("system:node:"+node, []string{"system:nodes"}, time.Hour)
	require.NoError(t, err)
	file, err := c.Kubeconfig()
	require.NoError(t, err)
	return c, file
}

// kubelet returns the user at an agent. It speaks protobuf, as a kubelet does, or JSON.
func (s *site) kubelet(c *controlplane.Client, contentType string) *kubelet {
	s.t.Helper()
	config := restConfig(s.t, s.cached)
	config.BearerToken, config.CertData, config.KeyData = "", c.CertPEM, c.KeyPEM
	config.ContentType, config.AcceptContentTypes = contentType, contentType+","+runtime.ContentTypeJSON
	config.WarningHandler = rest.NoWarnings{} // each repeated token has one
	client := harness.Clientset(s.t, config)
	return &kubelet{s.t, client}
}

// token asks for the token of a pod of the service account till.
func (k *kubelet) token(pod *corev1.Pod, audiences ...string) (string, error) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	seconds := int64(3607) // what a kubelet asks for
	out, err := k.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, "till", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences, ExpirationSeconds: &seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		require.Empty(k.t, out.Status.Token)
		return "", err
	}
	return out.Status.Token, nil
}

// has returns a token that must be there.
func (k *kubelet) has(pod *corev1.Pod, audiences ...string) string {
	k.t.Helper()
	token, err := k.token(pod, audiences...)
	require.NoError(k.t, err)
	require.NotEmpty(k.t, token)
	return token
}

// hasNone requires that there is no token without the kube-apiserver.
func (k *kubelet) hasNone(pod *corev1.Pod, audiences ...string) {
	k.t.Helper()
	_, err := k.token(pod, audiences...)
	require.True(k.t, apierrors.IsServiceUnavailable(err), "%v", err)
}

// TestRememberedTokens: tokens that the kube-apiserver has issued are repeated to the same user while it
// is away, after a restart too, are still valid when it is back, and are not repeated once their pod is deleted or
// the server has refused them.
func TestRememberedTokens(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	on := newPlane(t, "--api-audiences=edge") // not the issuer: the agent learns it
	admin := harness.Clientset(t, on.RESTConfig(controlplane.Admin))
	pods := newTills(t, admin)
	first, firstFile := newKubelet(t, on, "edge-1")
	second, secondFile := newKubelet(t, on, "edge-2")
	s := newSiteOf(t, on, accessResources(false), func(s *site) {
		s.access, s.forward, s.tokens, s.identities = true, true, true, []string{firstFile, secondFile}
	})
	require.NoError(t, s.agent.await(ctx, s.resources))
	k, other, plain := s.kubelet(first, runtime.ContentTypeProtobuf), s.kubelet(second, runtime.ContentTypeProtobuf), s.kubelet(first, runtime.ContentTypeJSON)
	require.Eventually(t, func() bool { _, err := k.token(pods[0]); return err == nil }, patience, pollEvery, "the agent has the authority of the certificates")

	token, vault := k.has(pods[0]), k.has(pods[0], "vault")
	require.NotEqual(t, token, k.has(pods[1]))
	own := other.has(pods[0], "own")
	authenticated := func(token string) bool {
		code, _ := user{token: token}.at(t, restConfig(t, s.cached)).get(t, "/version")
		return code != http.StatusUnauthorized
	}
	require.True(t, authenticated(token))
	require.False(t, authenticated(vault))

	require.NoError(t, on.KillAPIServer(ctx))
	require.Equal(t, token, k.has(pods[0]), "before the agent has noticed, too")
	s.stop()
	s.start()
	require.Equal(t, token, k.has(pods[0]))
	require.Equal(t, token, plain.has(pods[0]), "as JSON")
	require.Equal(t, vault, k.has(pods[0], "vault"))
	require.Equal(t, own, other.has(pods[0], "own"))
	other.hasNone(pods[0])
	k.hasNone(pods[0], "own")
	k.hasNone(pods[2])
	replaced := pods[0].DeepCopy()
	replaced.UID = "another"
	k.hasNone(replaced)
	require.True(t, authenticated(k.has(pods[1])), "the pod is known by its token, which the server has not reviewed")
	require.False(t, authenticated(vault))
	s.requireSealed(token, vault, own)

	require.NoError(t, on.StartAPIServer(ctx))
	review, err := admin.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.True(t, review.Status.Authenticated, review.Status.Error)
	require.Equal(t, "system:serviceaccount:shop:till", review.Status.User.Username)
	require.Equal(t, []string{pods[0].Name}, []string(review.Status.User.Extra["authentication.kubernetes.io/pod-name"]))
	require.Eventually(t, func() bool {
		fresh, err := k.token(pods[0])
		return err == nil && fresh != token
	}, patience, pollEvery, "the server issues tokens again")

	// What is deleted, or refused, while the server is there is not repeated without it.
	require.NotEmpty(t, k.has(pods[1]))
	require.NoError(t, admin.CoreV1().Pods("shop").Delete(ctx, pods[0].Name, *metav1.NewDeleteOptions(0)))
	require.Eventually(t, func() bool {
		_, err := k.client.CoreV1().Pods("shop").Get(ctx, pods[0].Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, pollEvery)
	require.NoError(t, admin.RbacV1().ClusterRoleBindings().Delete(ctx, "kubelets", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := k.token(pods[1])
		return apierrors.IsForbidden(err)
	}, patience, pollEvery)
	require.NoError(t, on.KillAPIServer(ctx))
	k.hasNone(pods[0])
	k.hasNone(pods[0], "vault")
	k.hasNone(pods[1])
}

// newTills creates the pods of a service account, and the rights of kubelets, and returns the pods.
func newTills(t *testing.T, admin kubernetes.Interface) (all []*corev1.Pod) {
	t.Helper()
	ctx := t.Context()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta("shop")}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.CoreV1().ServiceAccounts("shop").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta("till")}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range []string{"till-0", "till-1", "till-2"} {
		pod, err := admin.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{
			NodeName: "edge-1", ServiceAccountName: "till", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		all = append(all, pod)
	}
	_, err = admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta("kubelets"), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("kubelets"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubelets"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:nodes"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return all
}

// requireSealed requires that no file of the agent, its log among them, has one of the tokens in clear.
func (s *site) requireSealed(tokens ...string) {
	s.t.Helper()
	found := false
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw := harness.ReadFile(s.t, path)
		for _, token := range tokens {
			require.NotContains(s.t, string(raw), strings.Split(token, ".")[1], path)
		}
		if filepath.Base(path) == "tokens.db" {
			found = true
			info, err := d.Info()
			require.NoError(s.t, err)
			require.Equal(s.t, fs.FileMode(0o600), info.Mode().Perm())
		}
		return nil
	})
	require.NoError(s.t, err)
	require.True(s.t, found)
}
