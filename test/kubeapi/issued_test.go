package kubeapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// issuedWorld is a node whose kubelet has only the certificate that the agent issues.
type issuedWorld struct {
	*workload
	site *site
	dir  string // of the agent's credentials
}

// kubeconfig returns the file that the agent writes for the kubelet.
func (w *issuedWorld) kubeconfig() string { return filepath.Join(w.dir, "kubelet.kubeconfig") }

// client returns a client with the certificate in a file, at the agent.
func (w *issuedWorld) client(certificate []byte) kubernetes.Interface {
	w.t.Helper()
	config := restConfig(w.t, w.kubeconfig())
	config.CertFile, config.KeyFile, config.CertData, config.KeyData = "", "", certificate, certificate
	config.WarningHandler = rest.NoWarnings{}
	return harness.Clientset(w.t, config)
}

// certificate returns the kubelet's certificate and its key.
func (w *issuedWorld) certificate() []byte {
	w.t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.dir, "kubelet.pem"))
	require.NoError(w.t, err)
	return raw
}

// of returns a certificate that the agent's authority has issued to the kubelet of another node.
func (w *issuedWorld) of(node string) []byte {
	w.t.Helper()
	private, err := keyutil.PrivateKeyFromFile(filepath.Join(w.dir, "ca.key"))
	require.NoError(w.t, err)
	ca, err := cert.CertsFromFile(filepath.Join(w.dir, "ca.crt"))
	require.NoError(w.t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(w.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca[0], key.Public(), private)
	require.NoError(w.t, err)
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(w.t, err)
	return append(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), encoded...)
}

// reads requires that the kubelet reads its node and its pods, and nothing of others.
func (w *issuedWorld) reads(k kubernetes.Interface, away bool) {
	w.t.Helper()
	ctx := w.t.Context()
	_, err := k.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	require.NoError(w.t, err)
	pods, err := k.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	require.NoError(w.t, err)
	require.Len(w.t, pods.Items, 7)
	_, err = k.CoreV1().Secrets(shop).Get(ctx, "password", metav1.GetOptions{})
	require.NoError(w.t, err, "its pods mount it")
	watch, err := k.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName, ResourceVersion: pods.ResourceVersion})
	require.NoError(w.t, err)
	watch.Stop()

	for what, read := range map[string]func() error{
		"another node":       func() error { _, err := k.CoreV1().Nodes().Get(ctx, "edge-2", metav1.GetOptions{}); return err },
		"a Secret of no pod": func() error { _, err := k.CoreV1().Secrets(shop).Get(ctx, "other", metav1.GetOptions{}); return err },
		"all Secrets":        func() error { _, err := k.CoreV1().Secrets(shop).List(ctx, metav1.ListOptions{}); return err },
	} {
		require.True(w.t, apierrors.IsForbidden(read()), "%s: %v", what, read())
	}
	_, err = k.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=edge-2"})
	if away { // they are not cached
		require.True(w.t, apierrors.IsServiceUnavailable(err), "%v", err)
	} else {
		require.True(w.t, apierrors.IsForbidden(err), "%v", err)
	}
}

// awaitDecisions waits until the decisions on the kubelet's requests are durable, which takes a second: the newest one
// has been written for two.
func (w *issuedWorld) awaitDecisions() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		files, err := filepath.Glob(filepath.Join(w.dir, "decisions.db*"))
		require.NoError(w.t, err)
		require.NotEmpty(w.t, files)
		return !slices.ContainsFunc(files, func(name string) bool {
			info, err := os.Stat(name)
			return err != nil || time.Since(info.ModTime()) < 2*time.Second
		})
	}, patience, lookEvery, "decisions are being written")
}

// annotate writes an annotation of a node, by its status as a kubelet does.
func annotate(ctx context.Context, k kubernetes.Interface, node string) error {
	_, err := k.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"written":"by the kubelet"}}}`), metav1.PatchOptions{}, "status")
	return err
}

// nodeToken is a token of the kubelet, whom the kube-apiserver also knows by other attributes, as EKS does.
const nodeToken = "the-token-of-the-kubelet"

// newNodePlane starts a control plane that knows the token.
func newNodePlane(t *testing.T) *plane {
	t.Helper()
	dir := t.TempDir()
	var tokens strings.Builder
	for name, group := range map[string]string{controlplane.Admin: "system:masters", controlplane.Reader: "", controlplane.Stranger: ""} {
		fmt.Fprintf(&tokens, "%s,%s,%s,%s\n", rand.Text(), name, name, group)
	}
	fmt.Fprintf(&tokens, "%s,system:node:%s,arn,\"system:bootstrappers,system:nodes\"\n", nodeToken, nodeName)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(tokens.String()), 0o600))
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Dir: dir, APIServerArgs: []string{"--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cp.Stop()) })
	return &plane{ControlPlane: cp}
}

// TestIssuedKubelet: a kubelet with the certificate that the agent issues works as with one of the cluster:
// it reads what the cluster lets it read, what it writes is forwarded with the configured identity, and it
// starts its pods without a kube-apiserver. No one else is let in by that authority, and by that
// certificate nowhere else.
func TestIssuedKubelet(t *testing.T) {
	for name, identity := range map[string]func(*testing.T, *plane) string{
		"certificate": func(t *testing.T, on *plane) string {
			t.Helper()
			_, file := newKubelet(t, on, nodeName)
			return file
		},
		"token": func(t *testing.T, on *plane) string {
			t.Helper()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(nodeToken), 0o600))
			config, err := clientcmd.LoadFromFile(harness.Kubeconfig(t, on.ControlPlane, controlplane.Admin))
			require.NoError(t, err)
			for _, user := range config.AuthInfos {
				user.Token, user.TokenFile = "", filepath.Join(dir, "token")
			}
			require.NoError(t, clientcmd.WriteToFile(*config, filepath.Join(dir, "kubeconfig")))
			return filepath.Join(dir, "kubeconfig")
		},
	} {
		t.Run(name, func(t *testing.T) { issuedKubelet(t, identity) })
	}
}

func issuedKubelet(t *testing.T, identityOf func(*testing.T, *plane) string) {
	t.Helper()
	ctx := t.Context()
	on := newNodePlane(t)
	admin := harness.Clientset(t, on.RESTConfig(controlplane.Admin))
	w := &issuedWorld{workload: &workload{t: t, typed: admin}}
	w.begin()
	_, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-2"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.CoreV1().Secrets(shop).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	cluster, _ := newKubelet(t, on, nodeName)
	identity := identityOf(t, on)
	secrets := &resource{}
	secrets.Version, secrets.Resource = "v1", "secrets"
	w.site = newSiteOf(t, on, []*resource{secrets}, func(s *site) {
		s.access, s.issued, s.forward, s.tokens, s.node, s.identities = true, true, true, true, nodeName, []string{identity}
	})
	w.dir = filepath.Join(w.site.dir, "kubernetes-api")
	(&node{workload: w.workload, site: w.site}).awaitCaughtUp()
	issued := w.certificate()
	k := w.client(issued)

	w.reads(k, false)
	require.Eventually(t, func() bool { return annotate(ctx, k, nodeName) == nil }, patience, pollEvery)
	written, err := admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "by the kubelet", written.Annotations["written"])
	require.True(t, apierrors.IsForbidden(annotate(ctx, k, "edge-2")), "the kube-apiserver knows it as the kubelet of edge-1")
	direct := rest.AnonymousClientConfig(on.RESTConfig(controlplane.Admin))
	direct.CertData, direct.KeyData = issued, issued
	_, err = harness.Clientset(t, direct).CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)

	refused := func() {
		t.Helper()
		_, err := w.client(w.of(nodeName)).CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		require.NoError(t, err, "the control")
		_, err = w.client(w.of("edge-2")).CoreV1().Nodes().Get(ctx, "edge-2", metav1.GetOptions{})
		require.True(t, apierrors.IsUnauthorized(err), "%v", err)
		_, err = w.client(append(slices.Clone(cluster.CertPEM), cluster.KeyPEM...)).CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		require.NoError(t, err, "one of the cluster's is as good")
	}
	refused()
	kubelet := startKubelet(t, w.kubeconfig(), filepath.Join(w.site.dir, "kubelet"))
	runs := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			names, err := kubelet.running(ctx)
			return err == nil && len(names) == 7
		}, patience, lookEvery, "the kubelet does not run its pods")
	}
	runs()
	require.Eventually(t, func() bool {
		pods, err := admin.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	}, patience, lookEvery, "their status is not at the kube-apiserver")

	w.awaitDecisions()
	kubelet.Kill()
	require.NoError(t, on.KillAPIServer(ctx))
	w.site.kill()
	w.site.start()
	require.Equal(t, issued, w.certificate(), "it is the same after a restart")
	w.reads(k, true)
	err = annotate(ctx, k, nodeName)
	require.True(t, apierrors.IsServiceUnavailable(err), "%v", err)
	refused()
	kubelet = startKubelet(t, w.kubeconfig(), filepath.Join(w.site.dir, "kubelet"))
	runs()
}
