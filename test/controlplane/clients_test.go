package controlplane_test

import (
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestClients: the apiserver knows a client certificate's user and groups until it expires, the node
// authorizer gives a kubelet its node and not another's, and the authority is published.
func TestClients(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{APIServerArgs: []string{
		"--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction",
	}})
	client := func(validity time.Duration) *kubernetes.Clientset {
		t.Helper()
		c, err := cp.IssueClient("system:node:edge-1", []string{"system:nodes"}, validity)
		if err != nil {
			t.Fatal(err)
		}
		path, err := c.Kubeconfig()
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		return kubernetes.NewForConfigOrDie(config)
	}
	kubelet := client(time.Hour)
	review, err := kubelet.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := review.Status.UserInfo; got.Username != "system:node:edge-1" || got.Groups[0] != "system:nodes" {
		t.Errorf("the user is %+v", got)
	}
	for _, tc := range []struct {
		name    string
		allowed bool
	}{{"edge-1", true}, {"edge-2", false}} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tc.name}}
		_, err := kubelet.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		if tc.allowed && err != nil || !tc.allowed && !apierrors.IsForbidden(err) {
			t.Errorf("create the node %s: %v", tc.name, err)
		}
	}
	_, err = client(-time.Second).CoreV1().Nodes().Get(t.Context(), "edge-1", metav1.GetOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("a certificate that has expired: %v", err)
	}
	published, err := clientOf(t, cp, controlplane.Admin).CoreV1().ConfigMaps(metav1.NamespaceSystem).
		Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil || published.Data["client-ca-file"] == "" {
		t.Errorf("the published authority: %v (%v)", published, err)
	}
}
