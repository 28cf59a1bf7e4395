package kubeapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// tillPod is a pod of a node, of the service account till, which may read the pods of its namespace. It has only what
// each pod has: two variables, a token and the cluster's CA.
type tillPod struct {
	t     *testing.T
	site  *site
	admin kubernetes.Interface
	dir   string // in place of /var/run/secrets/kubernetes.io/serviceaccount
}

func newTillPod(t *testing.T, on *plane) *tillPod {
	t.Helper()
	ctx := t.Context()
	p := &tillPod{t: t, admin: harness.Clientset(t, on.RESTConfig(controlplane.Admin)), dir: t.TempDir()}
	_, err := p.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = p.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = p.admin.CoreV1().ServiceAccounts(shop).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "till"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = p.admin.RbacV1().Roles(shop).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = p.admin.RbacV1().RoleBindings(shop).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "till"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "till"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: shop, Name: "till"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod, err := p.admin.CoreV1().Pods(shop).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Spec: corev1.PodSpec{
		NodeName: nodeName, ServiceAccountName: "till", Containers: []corev1.Container{{Name: "till", Image: "image"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := p.admin.CoreV1().ServiceAccounts(shop).CreateToken(ctx, "till", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "token"), []byte(token.Status.Token), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "ca.crt"), on.RESTConfig(controlplane.Admin).CAData, 0o600))
	return p
}

// reach waits until the agent of the node has caught up, and leads the pod there.
func (p *tillPod) reach() {
	p.t.Helper()
	(&node{workload: &workload{t: p.t}, site: p.site}).awaitCaughtUp()
	host, port, err := net.SplitHostPort(p.site.address)
	require.NoError(p.t, err)
	p.t.Setenv("KUBERNETES_SERVICE_HOST", host)
	p.t.Setenv("KUBERNETES_SERVICE_PORT", port)
}

// config does what rest.InClusterConfig does, with the files in another directory.
func (p *tillPod) config() *rest.Config {
	p.t.Helper()
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	require.NotEmpty(p.t, host)
	token := filepath.Join(p.dir, "token")
	return &rest.Config{
		Host:            "https://" + net.JoinHostPort(host, port),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(p.dir, "ca.crt")},
		BearerToken:     string(harness.ReadFile(p.t, token)), BearerTokenFile: token, WarningHandler: rest.NoWarnings{},
	}
}

// pods lists the pods of the namespace over a new connection.
func (p *tillPod) pods() (int, error) {
	p.t.Helper()
	config := p.config()
	config.Dial = new(net.Dialer).DialContext // no connection of an earlier client is used
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	pods, err := harness.Clientset(p.t, config).CoreV1().Pods(shop).List(ctx, metav1.ListOptions{})
	return len(pods.Items), err
}

// reads requires that the pod reads its namespace.
func (p *tillPod) reads() {
	p.t.Helper()
	require.Eventually(p.t, func() bool { n, err := p.pods(); return err == nil && n == 1 }, patience, lookEvery)
}

// served returns the certificate at the agent's address.
func (p *tillPod) served() *x509.Certificate {
	p.t.Helper()
	conn, err := tls.Dial("tcp", p.site.address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is compared
	require.NoError(p.t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// issue approves and signs the agent's next request, as an administrator and a signer of the cluster do, and waits until
// the certificate is served.
func (p *tillPod) issue(lifetime time.Duration) *big.Int {
	p.t.Helper()
	ctx, requests := p.t.Context(), p.admin.CertificatesV1().CertificateSigningRequests()
	var r *certificatesv1.CertificateSigningRequest
	require.Eventually(p.t, func() bool {
		all, err := requests.List(ctx, metav1.ListOptions{})
		require.NoError(p.t, err)
		require.LessOrEqual(p.t, len(all.Items), 1)
		if len(all.Items) == 0 || len(all.Items[0].Status.Certificate) > 0 {
			return false
		}
		r = &all.Items[0]
		return true
	}, patience, pollEvery, "the agent does not ask for a certificate")
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	})
	r, err := requests.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
	require.NoError(p.t, err)
	now := time.Now()
	r.Status.Certificate, err = p.site.Sign(r.Spec.Request, now, now.Add(lifetime))
	require.NoError(p.t, err)
	_, err = requests.UpdateStatus(ctx, r, metav1.UpdateOptions{})
	require.NoError(p.t, err)
	pool := x509.NewCertPool()
	require.True(p.t, pool.AppendCertsFromPEM(harness.ReadFile(p.t, filepath.Join(p.dir, "ca.crt"))))
	var found *x509.Certificate
	require.Eventually(p.t, func() bool {
		found = p.served()
		_, err := found.Verify(x509.VerifyOptions{Roots: pool})
		return err == nil && !found.NotBefore.Before(now.Truncate(time.Second))
	}, patience, pollEvery, "the certificate is not served")
	require.Equal(p.t, "system:node:"+nodeName, found.Subject.CommonName)
	require.Equal(p.t, []string{nodeName}, found.DNSNames)
	return found.SerialNumber
}

// TestInCluster: a pod with the cluster's CA alone reads from the agent at its node's address: once the cluster's signer
// has issued the agent's certificate, after its renewal, which no restart is needed for, and after a restart without
// the kube-apiserver. Kubeconfigs from before the certificate work all the time.
func TestInCluster(t *testing.T) {
	on := newPlane(t)
	p := newTillPod(t, on)
	p.site = newSiteOf(t, on, nil, func(s *site) {
		s.access, s.node, s.api, s.partly = true, nodeName, "  signer: kubernetes.io/kubelet-serving\n", "- resource: pods\n"
	})
	p.reach()
	own := harness.Clientset(t, restConfig(t, p.site.cached))
	ownReads := func() {
		t.Helper()
		config := restConfig(t, p.site.cached)
		config.Dial = new(net.Dialer).DialContext
		_, err := harness.Clientset(t, config).CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
	}
	_, err := own.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	_, err = p.pods()
	require.ErrorContains(t, err, "unknown authority", "the agent's own certificate is served")

	first := p.issue(20 * time.Second)
	p.reads()
	ownReads()
	watch, err := harness.Clientset(t, p.config()).CoreV1().Pods(shop).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watch.Stop()
	require.Equal(t, first, p.served().SerialNumber)

	second := p.issue(time.Hour)
	require.NotEqual(t, first, second)
	ends := harness.Metrics(t, p.site.metrics)["snapcache_kubernetes_api_certificate_not_after_timestamp_seconds"]
	require.InDelta(t, p.served().NotAfter.Unix(), ends.GetMetric()[0].GetGauge().GetValue(), 0)
	p.reads()
	ownReads()
	select {
	case e, open := <-watch.ResultChan():
		require.True(t, open && e.Type != "ERROR", "a renewal ends no connection: %v", e)
	default:
	}

	require.NoError(t, on.KillAPIServer(t.Context()))
	p.site.kill()
	p.site.start()
	require.Equal(t, second, p.served().SerialNumber)
	p.reads()
	ownReads()
}

// TestInClusterAuthority: a pod with the certificate of a fleet's authority reads from the agent that has the authority,
// at once and without the kube-apiserver, and after the authority was replaced in both places, without a restart.
func TestInClusterAuthority(t *testing.T) {
	on := newPlane(t)
	p := newTillPod(t, on)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	replace := func() {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "fleet"}, key)
		require.NoError(t, err)
		raw, err := cert.EncodeCertificates(ca)
		require.NoError(t, err)
		require.NoError(t, cert.WriteCert(certFile, raw))
		require.NoError(t, cert.WriteCert(filepath.Join(p.dir, "ca.crt"), raw))
		raw, err = keyutil.MarshalPrivateKeyToPEM(key)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(keyFile, raw, 0o600))
	}
	replace()
	p.site = newSiteOf(t, on, nil, func(s *site) {
		s.access, s.node, s.partly = true, nodeName, "- resource: pods\n"
		s.api = fmt.Sprintf("  authorityCertFile: %s\n  authorityKeyFile: %s\n", certFile, keyFile)
	})
	p.reach()
	p.reads()
	first := p.served()
	require.Equal(t, []string(nil), first.DNSNames, "for the address alone")

	replace()
	p.reads()
	require.NotEqual(t, first.AuthorityKeyId, p.served().AuthorityKeyId)
	_, err := harness.Clientset(t, restConfig(t, p.site.cached)).CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "unknown authority", "snapcache kubeconfig has to be run again")
	require.NoError(t, on.KillAPIServer(t.Context()))
	p.site.kill()
	p.site.start()
	p.reads()
}
