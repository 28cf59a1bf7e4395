package kubeapi

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// The namespaces of a vault: what a limited user may read, and what it may not.
const (
	mine  = "vault-mine"
	other = "vault-other"
)

// vault is an agent with a kube-apiserver of its own, users of several rights, and content in a namespace
// that must not get to most of them.
type vault struct {
	*site
	admin  kubernetes.Interface
	tls    *tls.Config
	marker string // is in everything of the namespace other
	audit  string // file of the kube-apiserver's audit log

	accountKey *ecdsa.PrivateKey // of the cluster's service accounts
}

// newVault starts the servers, and waits until the agent is caught up.
func newVault(t *testing.T) *vault {
	t.Helper()
	audit, args := audited(t, t.TempDir())
	on := newPlane(t, args...)
	v := &vault{marker: "TOP-SECRET-" + rand.Text(), audit: audit}
	v.admin = harness.Clientset(t, on.RESTConfig(controlplane.Admin))
	block, _ := pem.Decode(harness.ReadFile(t, filepath.Join(on.Dir(), "pki", "service-account.key")))
	var err error
	v.accountKey, err = x509.ParseECPrivateKey(block.Bytes)
	require.NoError(t, err)
	for _, namespace := range []string{mine, other} {
		v.fill(t, namespace)
	}
	v.serve(t, on, false)
	return v
}

// serve starts an agent for the vault, which forwards or does not, and waits until it is caught up.
func (v *vault) serve(t *testing.T, on *plane, forward bool) {
	t.Helper()
	resources := accessResources(false)
	for _, name := range []string{"events", "namespaces"} {
		resources = append(resources, &resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: name}})
	}
	v.site = newSiteOf(t, on, resources, func(s *site) {
		s.access, s.forward = true, forward
		s.api = fmt.Sprintf("  socket: %s/kube.sock\n", s.dir)
	})
	require.NoError(t, v.agent.await(t.Context(), v.resources))
	var err error
	v.tls, err = rest.TLSConfigFor(restConfig(t, v.cached))
	require.NoError(t, err)
}

// reached returns the requests of a user agent that the kube-apiserver has got: user, code, verb and URI.
func (v *vault) reached(t *testing.T, agent string) (all []string) {
	t.Helper()
	for line := range bytes.Lines(readAll(t, v.audit, 0)) {
		var e struct {
			Stage, UserAgent, Verb, RequestURI string
			User                               struct{ Username string }
			ResponseStatus                     struct{ Code int }
		}
		require.NoError(t, json.Unmarshal(line, &e))
		if e.UserAgent == agent && e.Stage == "ResponseComplete" {
			all = append(all, fmt.Sprintf("%s %d %s %s", e.User.Username, e.ResponseStatus.Code, e.Verb, e.RequestURI))
		}
	}
	return all
}

// fill makes a namespace and its content, which contains the marker if it is the other one.
func (v *vault) fill(t *testing.T, namespace string) {
	t.Helper()
	ctx, text := t.Context(), "harmless"
	if namespace == other {
		text = v.marker
	}
	_, err := v.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for i := range 3 {
		named := metav1.ObjectMeta{Name: fmt.Sprint("x", i), Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": text}}
		_, err = v.admin.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: named, StringData: map[string]string{"password": text}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = v.admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"a": text}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = v.admin.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
			ObjectMeta: named, Message: text, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "x"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// leaks reports whether an answer has content of the other namespace.
func (v *vault) leaks(body string) bool {
	return strings.Contains(body, v.marker) || strings.Contains(body, base64.StdEncoding.EncodeToString([]byte(v.marker)))
}

// account makes a service account with rules in a namespace, or everywhere if that is empty.
func (v *vault) account(t *testing.T, name, in string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	ctx := t.Context()
	_, err := v.admin.CoreV1().ServiceAccounts(mine).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = v.admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	require.NoError(t, err)
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: mine, Name: name}}
	if in == "" {
		_, err = v.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = v.admin.RbacV1().RoleBindings(in).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

// token returns a token of an account, which is bound to a pod if there is one.
func (v *vault) token(t *testing.T, account string, pod *corev1.Pod) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	request, err := v.admin.CoreV1().ServiceAccounts(mine).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// pod makes a pod of an account.
func (v *vault) pod(t *testing.T, name, account string) *corev1.Pod {
	t.Helper()
	pod, err := v.admin.CoreV1().Pods(mine).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return pod
}

// removePod deletes a pod at once.
func (v *vault) removePod(t *testing.T, name string) {
	t.Helper()
	now := int64(0)
	require.NoError(t, v.admin.CoreV1().Pods(mine).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// forged returns a token like a real one, with changes to its header and its claims, and a signature by
// the key: an *ecdsa.PrivateKey, the []byte of an HMAC, or nil for none.
func forged(t *testing.T, token string, header, claims map[string]any, key any) string {
	t.Helper()
	parts := strings.Split(token, ".")
	for i, change := range []map[string]any{header, claims} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[i])
		require.NoError(t, err)
		var content map[string]any
		require.NoError(t, json.Unmarshal(raw, &content))
		maps.Copy(content, change)
		raw, err = json.Marshal(content)
		require.NoError(t, err)
		parts[i] = base64.RawURLEncoding.EncodeToString(raw)
	}
	signed := parts[0] + "." + parts[1]
	var signature []byte
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		sum := sha256.Sum256([]byte(signed))
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		require.NoError(t, err)
		signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	case []byte:
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(signed))
		signature = mac.Sum(nil)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func newSigner(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// master is the subject of a certificate of someone who may do everything.
var master = pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}

// newCertificate returns a client certificate of a master, signed by the last certificate of a chain, or
// by itself.
func newCertificate(t *testing.T, by *tls.Certificate) *tls.Certificate {
	t.Helper()
	key := newSigner(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: master, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		IsCA: by == nil, BasicConstraintsValid: true,
	}
	parent, signer, chain := template, any(key), [][]byte(nil)
	if by != nil {
		var err error
		parent, err = x509.ParseCertificate(by.Certificate[0])
		require.NoError(t, err)
		signer, chain = by.PrivateKey, by.Certificate
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: append([][]byte{der}, chain...), PrivateKey: key}
}

// issued returns a client certificate of the cluster's authority.
func (v *vault) issued(t *testing.T, name pkix.Name, validity time.Duration) *tls.Certificate {
	t.Helper()
	c, err := v.IssueClient(name.CommonName, name.Organization, validity)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(c.CertPEM, c.KeyPEM)
	require.NoError(t, err)
	return &pair
}

// proof is what a client shows of itself.
type proof struct {
	token       string
	certificate *tls.Certificate
	header      map[string]string
}

// with returns the proof with another header.
func (p proof) with(name, value string) proof {
	p.header = maps.Clone(p.header)
	if p.header == nil {
		p.header = map[string]string{}
	}
	p.header[name] = value
	return p
}

// dial connects as a client.
func (v *vault) dial(t *testing.T, p proof) *tls.Conn {
	t.Helper()
	config := v.tls.Clone()
	config.NextProtos = []string{"http/1.1"}
	if p.certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.certificate, nil }
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", v.address, config)
	require.NoError(t, err)
	return c
}

// open sends a request whose target is not changed in any way, and returns the answer, to be closed.
func (v *vault) open(t *testing.T, p proof, method, target string) (*http.Response, net.Conn) {
	t.Helper()
	c := v.dial(t, p)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: kubernetes\r\nConnection: close\r\nContent-Length: 0\r\n", method, target)
	if p.token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", p.token)
	}
	for name, value := range p.header {
		fmt.Fprintf(&b, "%s: %s\r\n", name, value)
	}
	_, err := io.WriteString(c, b.String()+"\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	require.NoError(t, err, "%s %s", method, target)
	return answer, c
}

// send sends a request, and reads its answer to the end.
func (v *vault) send(t *testing.T, p proof, method, target string) (code int, body string) {
	t.Helper()
	answer, c := v.open(t, p, method, target)
	defer c.Close()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	raw, err := io.ReadAll(answer.Body)
	require.NoError(t, err, "%s %s", method, target)
	return answer.StatusCode, string(raw)
}
